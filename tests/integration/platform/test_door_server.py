"""A publish that waits for its commit holds no thread, and is always answered."""

import http.client
import json
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from django.db import transaction
from django.utils import timezone

from msgplatform.core.data import ids
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
from notify.models import BizMsg, IdempotencyKey
from tests.support.api_server import Server
from tests.support.lock_waits import until_somebody_waits

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
MESSAGES = "/api/v1/messages"
PATIENT = "tests.support.patient_asgi:application"
SOON = 180.0
# More than the server has threads.
CALLERS = 24


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, django_db_setup: None) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("web") / "log", PATIENT, is_forked=False)
    yield server
    server.stop()


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: dict[str, str]


class Publisher:
    """A business system with a key."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.biz = Biz.objects.create(name="orders")
        self.sent = threading.Semaphore(0)  # counts requests that the kernel has taken
        self._key = keys.create(self.biz, "test", ["events:write"])[1]

    def publish(self, key: str, payload: object = 1, **more: object) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=SOON)
        body = {"event_type": "a", "payload": payload, "idempotency_key": key, **more}
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        try:
            connection.request("POST", MESSAGES, json.dumps(body), headers)
            self.sent.release()
            response = connection.getresponse()
            said = response.read()
            return Answer(response.status, dict(response.getheaders()), json.loads(said))
        finally:
            connection.close()

    @contextmanager
    def nothing_commits(self, pool: ThreadPoolExecutor) -> Iterator[Future[Answer]]:
        """Another transaction holds the key `held`; yields the request that waits for it."""
        with transaction.atomic():
            IdempotencyKey.objects.create(
                id=1,
                bucket=ids.bucket(self.biz.pk, "held"),
                biz_id=self.biz.pk,
                key="held",
                payload_hash="",
                created_at=timezone.now(),
            )
            held = pool.submit(self.publish, "held")
            assert self.sent.acquire(timeout=SOON)
            # Its connection came first, so it is with the server when this is answered.
            assert self.server.request("GET", "/healthz")[0] == 200
            until_somebody_waits()  # until then MariaDB lets other keys in
            yield held
            transaction.set_rollback(True)


@pytest.fixture
def publisher(server: Server) -> Publisher:
    return Publisher(server)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(CALLERS) as pool:
        yield pool


def test_many_at_once(publisher: Publisher, pool: ThreadPoolExecutor) -> None:
    answers = list(pool.map(publisher.publish, [f"k{n}" for n in range(300)]))
    assert {(a.status, a.body["outcome"]) for a in answers} == {(202, "created")}
    stored = {str(key.pk): key.key for key in IdempotencyKey.objects.all()}
    assert [stored[a.body["id"]] for a in answers] == [f"k{n}" for n in range(300)]
    assert BizMsg.objects.count() == 300


def test_what_comes_later_says_the_same(publisher: Publisher) -> None:
    first = publisher.publish("k")
    again = publisher.publish("k")
    assert (again.status, again.body) == (200, {"outcome": "duplicate", "id": first.body["id"]})
    other = publisher.publish("k", payload=2)
    assert (other.status, other.body["type"]) == (409, "/problems/conflict")
    wrong = publisher.publish("k", channel="a b")
    assert (wrong.status, wrong.body["type"]) == (400, "/problems/invalid-input")
    names = [{name.lower() for name in a.headers} for a in (first, other, wrong)]
    assert names[0] == names[1] == names[2] >= {"x-frame-options", "allow", "content-length"}
    assert first.headers["content-type"] == "application/json"
    assert other.headers["content-type"] == "application/problem+json"


def test_nobody_waits_in_a_thread(publisher: Publisher, pool: ThreadPoolExecutor) -> None:
    with publisher.nothing_commits(pool) as held:
        waiting = [pool.submit(publisher.publish, f"w{n}") for n in range(CALLERS - 1)]
        for _ in waiting:
            assert publisher.sent.acquire(timeout=SOON)
        for _ in range(20):  # more than the server has threads
            assert publisher.server.request("GET", "/healthz")[0] == 200
        assert not any(each.done() for each in [held, *waiting])
    answers = [each.result(SOON) for each in [held, *waiting]]
    assert {a.status for a in answers} == {202}
    assert BizMsg.objects.count() == CALLERS


def test_what_was_taken_in_is_answered_at_the_end(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    with ExitStack() as stack:
        server = Server(tmp_path / "log", PATIENT, is_forked=False)
        stack.callback(server.stop)
        with Publisher(server).nothing_commits(pool) as held:
            server.process.send_signal(signal.SIGTERM)
        assert held.result(SOON).status == 202
        assert server.process.wait(SOON) == 0
    assert BizMsg.objects.count() == 1
