"""Delivery as one would write it with RQ and requests, and a look into its queue.

One job a message. A session is kept for the life of the worker, so that connections stay open (a
bare `requests.post` would open one for each message); the signature is that of Standard Webhooks.
"""

import base64
import functools
import hashlib
import hmac
import os
import time
from collections.abc import Iterator, Sequence

import redis
import requests
from rq import Queue
from rq.job import Job

from bench.harness.programs import messages

QUEUE = "deliver"
SECRET = b"a signing secret of 32 bytes ...."
_PAGE = 1000


# One for each process: connections stay open.
@functools.cache
def _session() -> requests.Session:
    return requests.Session()


def deliver(url: str, message_id: str, body: str) -> None:
    """POST one signed message; anything but 2xx raises, so that RQ marks the job as failed."""
    data, timestamp = body.encode(), str(int(time.time()))
    content = b"%s.%s.%s" % (message_id.encode(), timestamp.encode(), data)
    signature = base64.b64encode(hmac.digest(SECRET, content, hashlib.sha256)).decode()
    headers = {
        "content-type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{signature}",
    }
    _session().post(url, data=data, headers=headers, timeout=15).raise_for_status()


def queue() -> Queue:
    return Queue(QUEUE, connection=redis.Redis.from_url(os.environ["REDIS_URL"]))


def put_all(url: str, pairs: Sequence[tuple[str, str]]) -> None:
    """Queue a job for each (message id, body); not measured."""
    for start in range(0, len(pairs), _PAGE):
        queue().enqueue_many(
            [Queue.prepare_data(deliver, (url, *pair)) for pair in pairs[start : start + _PAGE]]
        )


def queued_digests() -> Iterator[bytes]:
    """The digest of the body of every job that waits."""
    return _digests(queue().get_job_ids())


def digests_in_hand() -> Iterator[bytes]:
    """The digest of the job that a worker had taken when it was stopped; none if it had none."""
    return _digests(queue().intermediate_queue.get_job_ids())


def _digests(ids: Sequence[str]) -> Iterator[bytes]:
    connection = queue().connection
    for start in range(0, len(ids), _PAGE):
        for job in Job.fetch_many(ids[start : start + _PAGE], connection=connection):
            if job is not None:
                yield messages.digest(job.args[2].encode())
