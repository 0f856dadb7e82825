"""The HTTP engine by the clock: deadlines in every phase, and who never waits for whom.

The bounds are tenths of a second, which other tests on the same processor may use up. So where a
bound is close, one of several tries has to keep it.
"""

import random
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any

import pytest

from msgplatform.core.http.engine import AddressGuard, Engine, Response
from tests.support import http_engines, http_sinks as sinks
from tests.support.http_engines import LOOPBACK, MAX_WAITS, collect, names, request, send
from tests.support.http_sinks import Sink

engine = pytest.fixture(http_engines.engine)
happy = pytest.fixture(http_engines.happy)
_TRIES = 20


def first_within(seconds: float, ask: Callable[[], Response]) -> Response:
    """The first of several responses that took less than `seconds`."""
    for _ in range(_TRIES):
        if (response := ask()).seconds < seconds:
            return response
    pytest.fail(f"none of {_TRIES} responses came within {seconds} s")


@pytest.mark.parametrize("behaviour", [sinks.silent, sinks.slow(30)])
def test_the_deadline_covers_the_headers(
    engine: Engine, behaviour: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = http_engines.count_waits(engine, monkeypatch)

    def ask() -> Response:
        waits.clear()
        return send(engine, request(sink.url(), timeout=0.4))[0]

    with Sink(behaviour) as sink:
        response = first_within(0.8, ask)
    assert len(waits) < MAX_WAITS, "poll() spins while it waits for an answer"
    assert (response.status, response.error) == (0, "timeout")
    assert response.seconds >= 0.4
    assert response.detail


def test_the_deadline_covers_a_dripping_body(engine: Engine) -> None:
    with Sink(sinks.dripping) as sink:
        for _ in range(_TRIES):
            sent_before = sink.sent
            (response,) = send(engine, request(sink.url(), timeout=0.5))
            if response.body and response.seconds < 0.9 and sink.sent > sent_before + 5:
                break
        else:
            pytest.fail("no body was being received until its deadline")
    assert (response.status, response.error) == (200, "timeout")
    assert response.seconds >= 0.5
    assert set(response.body) == set(b".")


def test_the_deadline_covers_the_queue() -> None:
    go_on = threading.Event()
    with (
        Sink(sinks.held(go_on)) as sink,
        closing(Engine(AddressGuard(LOOPBACK), window=1)) as engine,
    ):
        engine.submit(request(sink.url(), timeout=600))
        second = first_within(0.7, lambda: send(engine, request(sink.url(), timeout=0.3))[0])
        go_on.set()
        (first,) = collect(engine, 1)
        assert engine.free == 1
    assert first.status == 200
    assert (second.error, second.status) == ("timeout", 0)
    assert "slot" in second.detail
    assert second.seconds >= 0.3
    assert len(sink.requests) == 1


def test_the_deadline_covers_the_name_and_others_do_not_wait(happy: Sink) -> None:
    answer_now = threading.Event()

    def lookup(name: str) -> list[str]:
        answer_now.wait(600)
        return ["127.0.0.1"]

    with closing(Engine(AddressGuard(LOOPBACK), lookup=lookup)) as engine:
        engine.submit(request(happy.url("/patient", host="stuck.test"), timeout=600))
        (quick,) = send(engine, request(happy.url("/quick")))
        assert quick.status == 200
        hasty = request(happy.url("/late", host="stuck.test"), timeout=0.5)
        late = first_within(0.9, lambda: send(engine, hasty)[0])
        answer_now.set()
        # The name arrives after the deadline: the request must not be sent any more.
        (patient,) = collect(engine, 1)
        assert engine.in_flight == 0
    assert (late.error, late.status) == ("timeout", 0)
    assert "name" in late.detail
    assert late.seconds >= 0.5
    assert patient.status == 200
    assert [seen.line.split()[1] for seen in happy.requests] == ["/quick", "/patient"]


def test_a_timeout_of_nothing_is_answered_at_once(engine: Engine, happy: Sink) -> None:
    responses = send(engine, *(request(happy.url(), timeout=t) for t in (0.0, -1.0)))
    assert {response.error for response in responses} == {"timeout"}


def test_every_request_gets_exactly_one_response() -> None:
    """All behaviours at once, more requests than slots, deadlines that end in every phase."""

    def lookup(name: str) -> list[str]:
        if name == "slow.test":
            time.sleep(0.1)
        return names(slow_test="127.0.0.1", pair_test="127.0.0.9 127.0.0.1")(name)

    endless = [sinks.silent, sinks.dripping]
    chosen = [sinks.answering(), sinks.answering(close=True), sinks.slow(0.2), *endless]
    chosen += [sinks.huge, sinks.resetting(), sinks.answering(b"", close=True)]
    with ExitStack() as stack:
        servers = [stack.enter_context(Sink(behaviour)) for behaviour in chosen]
        urls = [server.url(host=host) for server in servers for host in ("", "pair.test")]
        urls += [servers[0].url(host="slow.test"), "http://none.test/", "http://10.0.0.1/", "x:"]
        engine = stack.enter_context(
            closing(Engine(AddressGuard(LOOPBACK), window=50, lookup=lookup, dns_ttl=0.2))
        )
        chance = random.Random(7)
        hasty = [
            request(chance.choice(urls), timeout=chance.uniform(0.05, 3), tag=n)
            for n in range(1000)
        ]
        # With time for each kind of answer, however slow the machine is.
        ending = [server.url() for server in servers if server.behaviour not in endless]
        patient = [request(url, tag=1000 + n) for n, url in enumerate([*ending, *urls[-3:]])]
        for each in (*hasty, *patient):
            engine.submit(each)
            assert engine.in_flight <= 50
        responses = collect(engine, len(hasty) + len(patient))
        assert engine.poll(0) == []
        assert engine.free == 50
    tags = sorted(response.request.tag for response in responses)
    assert tags == list(range(len(hasty) + len(patient)))
    late = [each for each in responses if each.seconds > each.request.timeout + 0.5]
    assert len(late) < len(responses) / 2, "not when the machine stood still for a moment"
    for response in responses:
        assert bool(response.error) == bool(response.detail)
    assert {response.error for response in responses} >= {
        *("", "dns", "timeout", "reset", "too_large", "address_forbidden", "bad_url")
    }


def test_a_poll_without_work_waits_as_long_as_asked(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = http_engines.count_waits(engine, monkeypatch)
    started = time.monotonic()
    assert engine.poll(0.3) == []
    assert 0.3 <= time.monotonic() - started < 60
    assert len(waits) < MAX_WAITS


def test_a_name_in_use_never_waits_for_its_refresh(happy: Sink) -> None:
    """It would wait for minutes here."""
    refreshing, go_on = threading.Event(), threading.Event()
    asked: list[str] = []

    def lookup(name: str) -> list[str]:
        asked.append(name)
        if len(asked) > 1:
            refreshing.set()
            go_on.wait(600)
        return ["127.0.0.1"]

    with closing(Engine(AddressGuard(LOOPBACK), lookup=lookup, dns_ttl=600)) as engine:
        for _ in range(2):
            for _ in range(20):
                (response,) = send(engine, request(happy.url(host="hook.test")))
                assert response.status == 200
            engine._names._answers["hook.test"].fresh_until = 0.0
        (response,) = send(engine, request(happy.url(host="hook.test")))
        assert response.status == 200
        assert refreshing.wait(60)
        go_on.set()
    assert len(asked) == 2
