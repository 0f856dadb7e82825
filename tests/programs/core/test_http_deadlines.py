"""The HTTP engine by the clock: deadlines in every phase, and who never waits for whom.

The bounds are tenths of a second, which other tests on the same processor would use up.
"""

from __future__ import annotations

import random
import threading
import time
from contextlib import ExitStack, closing
from typing import Any

import pytest

from msgplatform.core.http.engine import AddressGuard, Engine
from tests.support import http_engines
from tests.support import http_sinks as sinks
from tests.support.http_engines import LOOPBACK, collect, names, request, send
from tests.support.http_sinks import Sink

pytestmark = pytest.mark.alone
engine = pytest.fixture(http_engines.engine)
happy = pytest.fixture(http_engines.happy)


@pytest.mark.parametrize("behaviour", [sinks.silent, sinks.slow(30)])
def test_the_deadline_covers_the_headers(engine: Engine, behaviour: Any) -> None:
    used = time.process_time()
    with Sink(behaviour) as sink:
        (response,) = send(engine, request(sink.url(), timeout=0.4))
    assert time.process_time() - used < 0.2, "poll() spins while it waits for an answer"
    assert (response.status, response.error) == (0, "timeout")
    assert 0.4 <= response.seconds < 0.8
    assert response.detail


def test_the_deadline_covers_a_dripping_body(engine: Engine) -> None:
    with Sink(sinks.dripping) as sink:
        (response,) = send(engine, request(sink.url(), timeout=0.5))
    assert sink.sent > 5, "the body was not being received"
    assert (response.status, response.error) == (200, "timeout")
    assert 0.5 <= response.seconds < 0.9
    assert response.body
    assert set(response.body) == set(b".")


def test_the_deadline_covers_the_queue() -> None:
    with Sink(sinks.slow(1.0)) as sink, closing(Engine(AddressGuard(LOOPBACK), window=1)) as engine:
        first, second = send(engine, request(sink.url()), request(sink.url(), timeout=0.3))
        assert engine.free == 1
    assert first.status == 200
    assert (second.error, second.status) == ("timeout", 0)
    assert "slot" in second.detail
    assert 0.3 <= second.seconds < 0.7
    assert len(sink.requests) == 1


def test_the_deadline_covers_the_name_and_others_do_not_wait(happy: Sink) -> None:
    answer_now = threading.Event()

    def lookup(name: str) -> list[str]:
        answer_now.wait(10)
        return ["127.0.0.1"]

    with closing(Engine(AddressGuard(LOOPBACK), lookup=lookup)) as engine:
        engine.submit(request(happy.url(host="stuck.test"), timeout=0.5))
        (quick,) = send(engine, request(happy.url("/quick")))
        assert quick.status == 200
        assert quick.seconds < 0.4
        (late,) = collect(engine, 1)
        answer_now.set()
        # The name arrives after the deadline: the request must not be sent any more.
        (again,) = send(engine, request(happy.url("/again", host="stuck.test")))
        assert engine.in_flight == 0
    assert (late.error, late.status) == ("timeout", 0)
    assert "name" in late.detail
    assert 0.5 <= late.seconds < 0.9
    assert again.status == 200
    assert [seen.line.split()[1] for seen in happy.requests] == ["/quick", "/again"]


def test_a_timeout_of_nothing_is_answered_at_once(engine: Engine, happy: Sink) -> None:
    responses = send(engine, *(request(happy.url(), timeout=t) for t in (0.0, -1.0)))
    assert {response.error for response in responses} == {"timeout"}


def test_every_request_gets_exactly_one_response() -> None:
    """All behaviours at once, more requests than slots, deadlines that end in every phase."""

    def lookup(name: str) -> list[str]:
        if name == "slow.test":
            time.sleep(0.1)
        return names(slow_test="127.0.0.1", pair_test="127.0.0.9 127.0.0.1")(name)

    chosen = [sinks.answering(), sinks.answering(close=True), sinks.slow(0.2), sinks.silent]
    chosen += [sinks.dripping, sinks.huge, sinks.resetting(), sinks.answering(b"", close=True)]
    with ExitStack() as stack:
        servers = [stack.enter_context(Sink(behaviour)) for behaviour in chosen]
        urls = [server.url(host=host) for server in servers for host in ("", "pair.test")]
        urls += [servers[0].url(host="slow.test"), "http://none.test/", "http://10.0.0.1/", "x:"]
        engine = stack.enter_context(
            closing(Engine(AddressGuard(LOOPBACK), window=50, lookup=lookup, dns_ttl=0.2))
        )
        chance = random.Random(7)
        for n in range(1000):
            engine.submit(request(chance.choice(urls), timeout=chance.uniform(0.05, 3), tag=n))
            assert engine.in_flight <= 50
        responses = collect(engine, 1000)
        assert engine.poll(0) == []
        assert engine.free == 50
    assert sorted(response.request.tag for response in responses) == list(range(1000))
    for response in responses:
        assert response.seconds < response.request.timeout + 0.5
        assert bool(response.error) == bool(response.detail)
    assert {response.error for response in responses} >= {
        *("", "dns", "timeout", "reset", "too_large", "address_forbidden", "bad_url")
    }


def test_a_poll_without_work_waits_as_long_as_asked(engine: Engine) -> None:
    started, used = time.monotonic(), time.process_time()
    assert engine.poll(0.3) == []
    assert 0.3 <= time.monotonic() - started < 1
    assert time.process_time() - used < 0.1


def test_a_name_in_use_never_waits_for_its_refresh(happy: Sink) -> None:
    slow = threading.Event()
    asked: list[str] = []

    def lookup(name: str) -> list[str]:
        asked.append(name)
        if len(asked) > 1:
            slow.wait(10)
        return ["127.0.0.1"]

    with closing(Engine(AddressGuard(LOOPBACK), lookup=lookup, dns_ttl=0.5)) as engine:
        end = time.monotonic() + 0.9
        while time.monotonic() < end:
            (response,) = send(engine, request(happy.url(host="hook.test"), timeout=1))
            assert response.status == 200
            assert response.seconds < 0.3
        slow.set()
    assert len(asked) == 2
