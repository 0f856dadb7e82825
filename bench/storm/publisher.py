"""A client of a peer under open load, in the peer's own Python where it has one.

    python -m bench.storm.publisher leads --rate 100 --book FILE --to SOCKET

Moments are drawn beforehand. A message that was not taken is repeated with the same number until
it is, as ours are by `bench.soak.caller`, and is a line in the book only then: number, moment due,
moment answered, tries, id. On SIGTERM nothing more is due, and the program ends after the last
answer; what it does not get through in `_LAST_SECONDS` was never accepted. One that was killed goes
on with the first message that is not in its book.
"""

import argparse
import http.client
import random
import signal
import sys
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

Publish = Callable[[int, float], None]  # number and moment due; raises what the peer raises

_AGAIN_SECONDS, _LAST_SECONDS = 0.1, 60.0
_ANSWER_SECONDS = 60.0  # as the caller of ours waits
READERS = 8
_LEAD = (
    "INSERT INTO `lead` (id, biz_id, appkey, uid, name, phone, extra, UpdateTime, IsDelete, "
    "version) VALUES (%s, 1, %s, %s, %s, %s, '{}', UTC_TIMESTAMP(6), 0, 1) "
    "ON DUPLICATE KEY UPDATE id = VALUES(id)"  # the commit of an earlier try may have come through
)
_ACCEPTED, _DELIVERED = 202, 1  # Kannel's status; of its dlr-mask


def leads(socket: str) -> Publish:
    """A row of dlt's source and a commit for each, through MariaDB's socket."""
    import MySQLdb

    from bench.crmsync import leads

    connections: list[Any] = []

    def insert(number: int, due: float) -> None:
        if not connections:
            settings = {"unix_socket": socket, "user": "root", "db": "bench", "charset": "utf8mb4"}
            connections.append(MySQLdb.connect(**settings, autocommit=True))
        row = leads.lead_id(number), leads.APPKEY, f"u{number}", "王小明", f"139{number:08}"
        try:
            connections[0].cursor().execute(_LEAD, row)
        except MySQLdb.Error:
            connections.pop().close()
            raise

    return insert


def posts(socket: str) -> Publish:
    """A post into the feeds of all readers, with stream-framework and through Redis' socket: its
    Manager, whose tasks would go through Celery, cannot be imported by this Python."""
    from bench.references.stream_framework import fan_out

    fan_out.use_redis(socket)
    from stream_framework.activity import Activity
    from stream_framework.feeds.redis import RedisFeed
    from stream_framework.verbs.base import Add

    def post(number: int, due: float) -> None:
        moment = fan_out.BEGIN + timedelta(seconds=number)
        activity = Activity(READERS, Add, number, time=moment)
        RedisFeed.insert_activities([activity])
        with RedisFeed.get_timeline_batch_interface() as batch:
            for reader in range(READERS):
                RedisFeed(reader).add_many([activity], batch_interface=batch, trim=False)

    return post


def sms(ports: str) -> Publish:
    """A request to Kannel's smsbox for each short message. `ports`: smsbox's, the consumer's."""
    from bench.gateway import sms_messages
    from bench.references.kannel.configuration import PASSWORD, USER

    port, consumer = map(int, ports.split(","))
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_ANSWER_SECONDS)
    hook = f"http://127.0.0.1:{consumer}/heard"

    def send(number: int, due: float) -> None:
        query = urlencode({
            "username": USER, "password": PASSWORD, "from": "10655001", "coding": 2,
            "charset": "UTF-8", "to": sms_messages.recipient(number),
            "text": sms_messages.text(number), "dlr-mask": _DELIVERED,
            "dlr-url": f"{hook}?number={number}&due={due:.6f}&state=%d",
        })  # fmt: skip
        try:
            connection.request("GET", f"/cgi-bin/sendsms?{query}")
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException):
            connection.close()  # the next request opens another
            raise
        if answer.status != _ACCEPTED:
            raise RuntimeError(f"{answer.status} {text[:100]!r}")

    return send


KINDS: Mapping[str, Callable[[str], Publish]] = {"leads": leads, "posts": posts, "sms": sms}


def run(rate: float, file: Path, publish: Publish) -> None:
    ends: list[float] = []
    signal.signal(signal.SIGTERM, lambda *_: ends.append(time.monotonic()))
    number = len(file.read_text().splitlines()) if file.exists() else 0
    due = time.monotonic()
    with file.open("a", encoding="ascii", buffering=1) as book:
        while not ends or due <= ends[0]:
            time.sleep(max(0.0, min(due - time.monotonic(), 0.1)))
            if time.monotonic() < due:
                continue
            if not (tries := _publish(publish, number, due, ends)):
                return
            book.write(f"{number} {due:.6f} {time.monotonic():.6f} {tries} {number}\n")
            number += 1
            due += random.expovariate(rate)


def _publish(publish: Publish, number: int, due: float, ends: list[float]) -> int:
    """The number of tries; 0 if the message was not taken until the end."""
    tries = 1
    while True:
        try:
            publish(number, due)
        except Exception as error:  # whatever the peer's library raises
            print(f"{number}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        else:
            return tries
        if ends and time.monotonic() > ends[0] + _LAST_SECONDS:
            return 0
        tries += 1
        time.sleep(_AGAIN_SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser(description="Publish at moments drawn beforehand.")
    parser.add_argument("kind", choices=list(KINDS))
    parser.add_argument("--rate", type=float, required=True, help="messages a second")
    parser.add_argument("--book", type=Path, required=True)
    parser.add_argument("--to", required=True, help="see the kind")
    options = parser.parse_args()
    run(options.rate, options.book, KINDS[options.kind](options.to))


if __name__ == "__main__":
    main()
