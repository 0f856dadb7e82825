"""Requests that web servers answered: counted in every process, told by any."""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from msgplatform.core.connections import RedisError
from msgplatform.core.web import request_counts
from msgplatform.core.web.request_counts import Requests
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
from tests.support.api_server import Server

SECONDS = 60.0
TOKEN = "for Prometheus"
MESSAGES = "/api/v1/messages"


def told() -> dict[tuple[str, ...], float]:
    """(route, method, status), or (route, bucket), or (route) for the sum → value."""
    found = {}
    for sample in request_counts.samples():
        bound = (sample.bound,) if sample.bound else ()
        found[(*sample.labels.values(), *bound)] = sample.value
    return found


class TestSums:
    @pytest.fixture(autouse=True)
    def nothing_of_this_process(self, work_redis: redis.Redis, monkeypatch: Any) -> None:
        monkeypatch.setattr(request_counts, "ANSWERED", Requests())

    def test_processes_are_added_up(self) -> None:
        one, other = Requests(), Requests()
        for process in (one, other, one):
            process.count("/rpc", "POST", 200, 0.02)
            process.add()
        one.count("/rpc", "POST", 503, 20.0)
        one.add()
        one.add()  # nothing came since
        found = told()
        assert found["/rpc", "POST", "200"] == 3
        assert found["/rpc", "POST", "503"] == 1
        bounds = ("0.01", "0.025", "10.0", "+Inf")
        assert [found["/rpc", bound] for bound in bounds] == [0, 3, 3, 4]
        assert found["/rpc",] == pytest.approx(20.06)

    def test_a_wrong_record_blinds_nobody(self, work_redis: redis.Redis) -> None:
        request_counts.ANSWERED.count("/rpc", "POST", 200, 0.02)
        for field in ("n", "n /rpc", "b /rpc x", "s /other", b"\xff", "", "b /rpc 99999999"):
            work_redis.hset("web:requests", field, "many")
        assert told()["/rpc", "POST", "200"] == 1

    def test_a_bound_belongs_to_its_bucket(self) -> None:
        request_counts.ANSWERED.count("/rpc", "GET", 200, 0.005)
        assert told()["/rpc", "0.005"] == 1

    def test_methods_that_callers_make_up_are_one(self) -> None:
        for number in range(50):
            request_counts.ANSWERED.count("/rpc", f"FETCH{number}", 405, 0.001)
        assert told()["/rpc", "other", "405"] == 50

    def test_nothing_is_forgotten_or_doubled_while_redis_is_away(
        self, settings: Any, work_redis: redis.Redis
    ) -> None:
        url = settings.REDIS_URL
        request_counts.ANSWERED.count("/rpc", "GET", 200, 0.001)
        request_counts.ANSWERED.add()
        settings.REDIS_URL = "unix:///no/such/redis.sock"
        request_counts.ANSWERED.count("/rpc", "GET", 200, 0.001)
        with pytest.raises(RedisError):
            request_counts.ANSWERED.add()
        assert told() == {}
        settings.REDIS_URL = url
        assert told()["/rpc", "GET", "200"] == 2

    def test_a_flush_begins_anew(self, work_redis: redis.Redis) -> None:
        request_counts.ANSWERED.count("/rpc", "GET", 200, 0.001)
        assert told()["/rpc", "GET", "200"] == 1
        work_redis.flushall()
        request_counts.ANSWERED.count("/rpc", "GET", 200, 0.001)
        assert told()["/rpc", "GET", "200"] == 1


@pytest.fixture
def web_servers(tmp_path: Path, work_redis: object) -> Iterator[list[Server]]:
    environment = {"METRICS_TOKEN": TOKEN}
    some = [Server(tmp_path / f"log{n}", environment=environment) for n in range(2)]
    yield some
    for server in some:
        server.stop()


def requests(server: Server) -> dict[tuple[str, str, str], float]:
    """(route, method, status) → how many, as `/metrics` of this server says."""
    status, body = server.request("GET", "/metrics", key=TOKEN)
    assert status == 200
    pattern = r'web_requests_total\{method="(.*)",route="(.*)",status="(.*)"\} (.*)'
    return {
        (route, method, status): float(value)
        for method, route, status, value in re.findall(pattern, body.decode())
    }


@pytest.mark.django_db(transaction=True)
def test_the_door_and_django_of_every_process(web_servers: list[Server]) -> None:
    key = keys.create(Biz.objects.create(name="orders"), "test", ["events:write"])[1]
    json = {"Content-Type": "application/json"}
    body = b'{"event_type": "a", "payload": 1}'
    for server in web_servers:
        for _ in range(3):  # the first by Django, which then knows the key; then by the fast intake
            assert server.request("POST", MESSAGES, key, body, json)[0] == 202
        assert server.request("POST", MESSAGES, key, b"{", json)[0] == 400
        assert server.request("GET", "/console/")[0] == 302
        assert server.request("GET", f"/{server.port}/made/up")[0] == 404

    wanted = {
        (MESSAGES, "POST", "202"): 6, (MESSAGES, "POST", "400"): 2,
        ("/console", "GET", "302"): 2, ("other", "GET", "404"): 2,
    }  # fmt: skip

    def both_know() -> bool:
        said = [requests(server) for server in web_servers]
        return all(wanted.items() <= found.items() for found in said)

    until(both_know)
    routes = {MESSAGES, "/console", "other", "/healthz", "/metrics"}
    until(lambda: {route for route, _, _ in requests(web_servers[0])} == routes)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.2)
