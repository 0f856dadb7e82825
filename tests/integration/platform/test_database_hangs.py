"""MariaDB hangs, or is dead: what needs no database goes on, and the process says that it lives."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.db import connection, connections

from msgplatform.api.access import keys
from msgplatform.models import Biz
from tests.integration.platform.test_api_server import Server
from tests.integration.support import sms_rows
from tests.servers import Servers

pytestmark = pytest.mark.django_db(transaction=True)
ON_MARIADB = connection.vendor == "mysql"  # SQLite is a file: it cannot hang
SMS, EVENTS = "/api/v1/sms", "/api/v1/messages/batch"
# Longer than what is reserved at once (ids.AHEAD_SECONDS), than the time until a key is asked for
# again (key_cache.TTL_SECONDS), and than all callers together wait for a first answer.
HANGS_SECONDS = 40.0
PROMPT = 5.0
# The keeper of the ids has looked (ids._LOOK_SECONDS) when so much is reserved.
RESERVED_SECONDS = 60


@pytest.fixture
def server(tmp_path: Path, django_db_setup: None) -> Iterator[Server]:
    server = Server(tmp_path / "log")
    yield server
    server.stop()


@contextmanager
def hanging(servers: Servers) -> Iterator[None]:
    pid = servers.mariadb().pid
    assert pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def until_ids_are_reserved() -> None:
    deadline = time.monotonic() + 60
    sql = "SELECT MAX(last_tick) FROM id_node WHERE holder <> ''"
    began: int | None = None
    while True:
        with connection.cursor() as cursor:
            cursor.execute(sql)
            ((ceiling,),) = cursor.fetchall()
        began = began or ceiling
        if ceiling - began > RESERVED_SECONDS * 128_000:
            return
        assert time.monotonic() < deadline
        time.sleep(0.2)


def send(server: Server, key: str) -> tuple[int, float]:
    """Status, and seconds until the answer."""
    body = json.dumps({"to": "13800000000", "text": "hello"}).encode()
    began = time.monotonic()
    status, _ = server.request("POST", SMS, key, body, {"Content-Type": "application/json"})
    return status, time.monotonic() - began


def test_short_messages_are_taken_while_the_database_hangs(
    server: Server, servers: Servers, sms_redis: object, work_redis: object
) -> None:
    if not ON_MARIADB:
        return
    biz = Biz.objects.create(name="shop")
    sms_rows.gateway()
    sms_rows.account(biz)
    key = keys.create(biz, "test", ["sms:write"])[1]
    assert send(server, key)[0] == 202
    until_ids_are_reserved()
    connections.close_all()
    told = []
    with hanging(servers):
        ends = time.monotonic() + HANGS_SECONDS
        while time.monotonic() < ends:
            told.append(send(server, key))
            time.sleep(0.2)
    assert {status for status, _ in told} == {202}
    assert max(seconds for _, seconds in told) < PROMPT


def test_it_says_that_it_lives_while_everything_waits_for_the_database(
    server: Server, servers: Servers, work_redis: object
) -> None:
    """All threads are taken, those of the health checks too."""
    if not ON_MARIADB:
        return
    key = keys.create(Biz.objects.create(name="shop"), "test", ["events:write"])[1]
    body = json.dumps({"messages": [{"event_type": "order.paid", "payload": 1}]}).encode()
    assert server.request("POST", EVENTS, key, body)[0] in (200, 415)
    over = threading.Event()

    def ask(method: str, path: str) -> None:
        while not over.is_set():
            try:
                server.request(method, path, key, body if method == "POST" else None)
            except OSError:
                continue

    connections.close_all()
    with ThreadPoolExecutor(40) as pool, hanging(servers):
        for number in range(40):
            pool.submit(ask, *(("POST", EVENTS) if number % 2 else ("GET", "/readyz")))
        took = []
        for _ in range(20):
            began = time.monotonic()
            assert server.request("GET", "/healthz") == (200, b"ok\n")
            took.append(time.monotonic() - began)
            time.sleep(0.2)
        over.set()
        server.stop()  # what waits is let go
    assert max(took) < 1.0
