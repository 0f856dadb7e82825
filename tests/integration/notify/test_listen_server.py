"""Listeners at the real web server: they wait in no thread, and its end loses nothing."""

import http.client
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from msgplatform.core.connections import work_redis
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
from notify.maker.maker import Maker
from notify.models import Attempt, Receive, ReceiveMsg
from tests.support.api_server import JSON, Server
from tests.support.notify_rows import publish, subscription

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
SOON = 180.0
# More than the server has threads.
LISTENERS = 24
LISTENER = b'{"listener": "test"}'


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], Server]]:
    servers: list[Server] = []

    def one_more() -> Server:
        servers.append(Server(tmp_path / f"log{len(servers)}"))
        return servers[-1]

    yield one_more
    for server in servers:
        server.stop()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(LISTENERS) as pool:
        yield pool


class Team:
    """A business system with a consumer for development for each of its engineers."""

    def __init__(self, size: int) -> None:
        self.biz = Biz.objects.create(name="orders")
        self.key = keys.create(self.biz, "test", ["events:listen"])[1]
        for number in range(size):
            Receive.objects.create(name=f"laptop-{number}", delivery="listen")
            subscription(self.biz, f"laptop-{number}")

    def listen(self, server: Server, number: int = 0) -> tuple[int, Any]:
        path = f"/api/v1/consumers/laptop-{number}/listen"
        status, raw = server.request("POST", path, self.key, LISTENER, JSON)
        return status, json.loads(raw)

    def next(self, server: Server, number: int = 0) -> Any:
        """The next delivery: as a listener does, it asks again when none came in time."""
        deadline = time.monotonic() + SOON
        while time.monotonic() < deadline:
            status, answer = self.listen(server, number)
            assert status == 200, answer
            if answer["delivery"]:
                return answer["delivery"]
        raise AssertionError("no delivery came")

    def finish(self, server: Server, delivery: Any) -> Any:
        body = json.dumps({"claim": delivery["claim"], "status": 200}).encode()
        path = f"/api/v1/consumers/laptop-0/listen/{delivery['id']}"
        status, raw = server.request("POST", path, self.key, body, JSON)
        assert status == 200, raw
        return json.loads(raw)


def until_waiting(server: Server, count: int) -> None:
    """Return when the server has looked for a delivery for so many requests: their places are
    taken."""
    while len(cast(list[bytes], work_redis().keys("notify:listener:*"))) < count:
        assert server.request("GET", "/healthz")[0] == 200


def make() -> None:
    maker = Maker()
    while maker.turn():
        pass


def test_many_wait_in_no_thread_and_are_woken(
    start: Callable[[], Server], pool: ThreadPoolExecutor
) -> None:
    server, team = start(), Team(LISTENERS)
    waiting = [pool.submit(team.next, server, number) for number in range(LISTENERS)]
    until_waiting(server, len(waiting))
    # A request that Django answers in one of the threads.
    assert server.request("GET", "/api/v1/messages", team.key)[0] == 403
    assert not any(each.done() for each in waiting)
    (message,) = publish(team.biz)
    make()
    deliveries = [each.result(SOON) for each in waiting]
    assert {delivery["message_id"] for delivery in deliveries} == {str(message)}
    assert ReceiveMsg.objects.filter(claimed_by__startswith="listen-").count() == LISTENERS


def test_a_listener_that_leaves_gets_no_delivery(start: Callable[[], Server]) -> None:
    server, team = start(), Team(1)
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    headers = {"Authorization": f"Bearer {team.key}", **JSON}
    connection.request("POST", "/api/v1/consumers/laptop-0/listen", LISTENER, headers)
    until_waiting(server, 1)
    connection.close()
    # The web server counts it as a client that has left, within seconds.
    deadline = time.monotonic() + SOON
    while not work_redis().hget("web:requests", "n /api/v1/consumers POST 499"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    publish(team.biz)
    make()
    assert ReceiveMsg.objects.get().status == ReceiveMsg.Status.PENDING


def test_a_killed_server_loses_nothing(start: Callable[[], Server]) -> None:
    server, team = start(), Team(1)
    messages = publish(team.biz, 3)
    make()
    delivery = team.next(server)
    os.killpg(server.process.pid, signal.SIGKILL)
    server.process.wait()
    server = start()
    assert team.finish(server, delivery)["outcome"] == "delivered"
    got = [int(delivery["message_id"])]
    # An answer that never arrives: the listener asks again, and gets the same delivery.
    team.listen(server)
    while len(got) < len(messages):
        delivery = team.next(server)
        got.append(int(delivery["message_id"]))
        team.finish(server, delivery)
    assert got == messages
    assert Attempt.objects.count() == 3


def test_the_end_of_the_server_answers_those_that_wait(
    start: Callable[[], Server], pool: ThreadPoolExecutor
) -> None:
    server, team = start(), Team(2)
    waiting = [pool.submit(team.listen, server, number) for number in range(2)]
    until_waiting(server, len(waiting))
    server.process.send_signal(signal.SIGTERM)
    answers = [each.result(SOON) for each in waiting]
    assert [(status, answer["delivery"]) for status, answer in answers] == [(200, None)] * 2
    assert server.process.wait(SOON) == 0
