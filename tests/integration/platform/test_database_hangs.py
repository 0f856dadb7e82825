"""MariaDB hangs, or is dead: what needs no database goes on, and the process says that it lives."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from statistics import median

import pytest
from django.db import connection, connections
from django.utils import timezone

from msgplatform.core.data import ids
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz, IdNode
from tests.servers import Servers
from tests.support import sms_rows
from tests.support.api_server import Server
from tests.support.hanging_servers import hanging

pytestmark = pytest.mark.django_db(transaction=True)
ON_MARIADB = connection.vendor == "mysql"  # SQLite is a file: it cannot hang
SMS, EVENTS = "/api/v1/sms", "/api/v1/messages/batch"
HASTY = "tests.support.hasty_asgi:application"
# Longer than what is reserved at once (ids.AHEAD_SECONDS), and than the time until a hasty server
# asks for a key again.
AWAY_SECONDS = 15.0
# Who waits for a database that hangs does so for the 5 s of a new connection, until it goes on, or
# for the 60 s of read_timeout.
USUAL, PROMPT = 4.0, 20.0
# The server has begun to keep ids ahead when so much is reserved.
RESERVED_SECONDS = 200
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def server(tmp_path: Path, django_db_setup: None) -> Iterator[Server]:
    server = Server(tmp_path / "log")
    yield server
    server.stop()


@pytest.fixture
def hasty(tmp_path: Path, django_db_setup: None) -> Iterator[Server]:
    server = Server(tmp_path / "log", HASTY)
    yield server
    server.stop()


def hanging_database(servers: Servers) -> AbstractContextManager[None]:
    return hanging(servers.mariadb())


@contextmanager
def dead(servers: Servers) -> Iterator[None]:
    servers.mariadb().kill()
    try:
        yield
    finally:
        servers.mariadb()  # it is started again


def until_ids_are_reserved() -> None:
    """By the server; nobody else keeps ids for minutes."""
    deadline = time.monotonic() + 180
    ahead = ids.first_id_at(timezone.now() + timedelta(seconds=RESERVED_SECONDS)) >> ids.TICK_SHIFT
    while not IdNode.objects.exclude(holder="").filter(last_tick__gt=ahead).exists():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def prompt(took: list[float]) -> None:
    """Nobody waited; the machine may have been busy for a moment."""
    assert median(took) < USUAL
    assert max(took) < PROMPT


def send(server: Server, key: str) -> tuple[int, float]:
    """Status, and seconds until the answer."""
    body = json.dumps({"to": "13800000000", "text": "hello"}).encode()
    began = time.monotonic()
    status, _ = server.request("POST", SMS, key, body, JSON)
    return status, time.monotonic() - began


@pytest.mark.parametrize("trouble", [hanging_database, dead])
def test_short_messages_are_taken_without_the_database(
    hasty: Server,
    servers: Servers,
    sms_redis: object,
    work_redis: object,
    trouble: Callable[[Servers], AbstractContextManager[None]],
) -> None:
    if not ON_MARIADB:
        return
    biz = Biz.objects.create(name="shop")
    sms_rows.gateway()
    sms_rows.account(biz)
    key = keys.create(biz, "test", ["sms:write"])[1]
    assert send(hasty, key)[0] == 202
    until_ids_are_reserved()
    connections.close_all()
    told = []
    with trouble(servers):
        ends = time.monotonic() + AWAY_SECONDS
        while time.monotonic() < ends:
            told.append(send(hasty, key))
            time.sleep(0.2)
    assert {status for status, _ in told} == {202}
    prompt([seconds for _, seconds in told])


def test_it_says_that_it_lives_while_everything_waits_for_the_database(
    server: Server, servers: Servers, work_redis: object
) -> None:
    """All threads are taken, those of the health checks too."""
    if not ON_MARIADB:
        return
    key = keys.create(Biz.objects.create(name="shop"), "test", ["events:write"])[1]
    body = json.dumps({"messages": [{"event_type": "order.paid", "payload": 1}]}).encode()
    assert server.request("POST", EVENTS, key, body, JSON)[0] == 200
    over = threading.Event()

    def ask(method: str, path: str) -> None:
        while not over.is_set():
            with suppress(OSError):
                server.request(method, path, key, body if method == "POST" else None, JSON)
            time.sleep(0.1)  # an answer that comes at once takes no thread

    connections.close_all()
    with ThreadPoolExecutor(40) as pool, hanging_database(servers):
        for number in range(40):
            pool.submit(ask, *(("POST", EVENTS) if number % 2 else ("GET", "/readyz")))
        took = []
        try:
            for _ in range(20):
                began = time.monotonic()
                assert server.request("GET", "/healthz") == (200, b"ok\n")
                took.append(time.monotonic() - began)
                time.sleep(0.2)
        finally:
            over.set()
            server.stop()  # what waits is let go
    prompt(took)
