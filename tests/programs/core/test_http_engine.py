"""The HTTP engine against real servers on real sockets."""

import asyncio
import gzip
import os
import socket
import ssl
import subprocess
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from msgplatform.core.http import resolver as resolver_module
from msgplatform.core.http.addresses import Network
from msgplatform.core.http.admission import Admission
from msgplatform.core.http.engine import (
    AddressGuard,
    Engine,
    Request,
    engine_from_settings,
    outline,
)
from msgplatform.core.http.resolver import MAX_THREADS, Resolver
from tests.support import http_engines, http_sinks as sinks, threads
from tests.support.http_engines import JSON, LOOPBACK, MAX_WAITS, collect, names, request, send
from tests.support.http_sinks import Sink

engine = pytest.fixture(http_engines.engine)
happy = pytest.fixture(http_engines.happy)


# -- the plain case --------------------------------------------------------------------------------
def test_a_request_goes_out_as_given_and_its_answer_comes_back(happy: Sink) -> None:
    body = '{"名":"小米"}'.encode()
    headers = [JSON, ("webhook-id", "msg_1"), ("X-Empty", ""), ("X-Name", "é")]
    with closing(Engine(AddressGuard(LOOPBACK), user_agent="tester")) as engine:
        began = time.monotonic()
        engine.submit(request(happy.url("/a/../b?c=%20#x"), body=body, headers=headers, tag="t"))
        assert (engine.in_flight, engine.free) == (1, engine.window - 1)
        (response,) = collect(engine, 1)
        assert (engine.in_flight, engine.free) == (0, engine.window)
    assert (response.status, response.body, response.error) == (200, b"ok", "")
    assert response.headers == b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
    assert (response.address, response.request.tag) == ("127.0.0.1", "t")
    assert 0 < response.seconds <= time.monotonic() - began
    (seen,) = happy.requests
    assert seen.line == "POST /a/../b?c=%20 HTTP/1.1"
    assert seen.body == body
    assert seen.headers == {
        "host": f"127.0.0.1:{happy.port}",
        "user-agent": "tester",
        "accept": "*/*",
        "content-type": "application/json",
        "webhook-id": "msg_1",
        "x-empty:": "",
        "x-name": "é",
        "content-length": str(len(body)),
    }


def test_methods_share_a_handle_without_mixing(engine: Engine, happy: Sink) -> None:
    calls = [
        ("POST", b"1"),
        ("GET", b""),
        ("PUT", b"22"),
        ("DELETE", b""),
        ("POST", b""),
        ("PATCH", b"333"),
        ("DELETE", b"4"),
        ("GET", b""),
    ]
    for method, body in calls:
        (response,) = send(engine, request(happy.url(), method=method, body=body, headers=[]))
        assert response.status == 200
    assert [(seen.line.split()[0], seen.body) for seen in happy.requests] == calls
    assert "content-length" not in happy.requests[1].headers
    assert happy.requests[4].headers["content-length"] == "0"
    assert all("content-type" not in seen.headers for seen in happy.requests)
    assert happy.connections == 1


def test_head_has_no_body(engine: Engine) -> None:
    with Sink(sinks.answering(b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n")) as sink:
        (response,) = send(engine, request(sink.url(), method="HEAD", body=b""))
    assert (response.status, response.body, response.error) == (200, b"", "")


@pytest.mark.parametrize("status", [204, 302, 404, 410, 429, 500, 503])
def test_every_final_status_is_an_answer_and_no_error(engine: Engine, status: int) -> None:
    answer = f"HTTP/1.1 {status} X\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n".encode()
    with Sink(sinks.answering(answer)) as sink:
        (response,) = send(engine, request(sink.url()))
    assert (response.status, response.error) == (status, "")
    assert b"Retry-After: 7" in response.headers


def test_interim_answers_are_not_the_answer(engine: Engine) -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    with Sink(sinks.answering(hints + sinks.OK)) as sink:
        (response,) = send(engine, request(sink.url()))
    assert response.status == 200
    assert response.headers == b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"


def test_a_large_body_goes_out_without_asking_first(engine: Engine, happy: Sink) -> None:
    body = bytes(range(256)) * 8192  # 2 MiB; libcurl would wait for "100 Continue"
    (response,) = send(engine, request(happy.url(), body=body))
    assert response.status == 200
    assert happy.requests[0].body == body
    assert "expect" not in happy.requests[0].headers
    (response,) = send(engine, request(happy.url(), body=b"", method="POST"))
    assert happy.requests[1].body == b""


# -- connections -----------------------------------------------------------------------------------
def test_a_connection_is_kept_alive(engine: Engine, happy: Sink) -> None:
    for _ in range(20):
        (response,) = send(engine, request(happy.url()))
        assert response.status == 200
    assert (happy.connections, len(happy.requests)) == (1, 20)


def test_a_connection_that_the_server_closed_is_replaced_and_costs_nothing(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = http_engines.count_waits(engine, monkeypatch)
    with Sink(sinks.answering(close=True)) as sink:
        for n in range(1, 4):
            (response,) = send(engine, request(sink.url()))
            assert response.status == 200
            started = time.monotonic()
            waits.clear()
            assert engine.poll(0.3) == []
            assert time.monotonic() - started >= 0.3
            assert len(waits) < MAX_WAITS, "the closed connection keeps poll() spinning"
            assert sink.connections == n


def test_sockets_whose_numbers_come_back_are_watched() -> None:
    """Closed and opened in quick turn: a number that was forgotten wrongly would hang."""
    answer = sinks.OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    with (
        Sink(sinks.answering(answer, close=True)) as sink,
        closing(Engine(AddressGuard(LOOPBACK), window=20)) as engine,
    ):
        for n in range(400):
            engine.submit(request(sink.url(f"/{n}")))
        responses = collect(engine, 400)
    assert {response.status for response in responses} == {200}
    assert sink.connections == 400


@pytest.mark.parametrize("window", [64, 300])
def test_the_window_is_filled_and_never_exceeded(window: int) -> None:
    with (
        Sink(sinks.slow(0.25, together=window)) as sink,
        closing(Engine(AddressGuard(LOOPBACK), window=window)) as engine,
    ):
        for n in range(300):
            engine.submit(request(sink.url(), timeout=60, tag=n))
        assert engine.in_flight == window
        assert engine.free == 0
        responses = collect(engine, 300)
    assert sink.most_busy == window
    assert {response.status for response in responses} == {200}
    assert {response.request.tag for response in responses} == set(range(300))
    assert sink.connections == window


def test_handles_that_change_their_destination_mix_nothing_up(happy: Sink) -> None:
    """More destinations than handles are kept for, so that each handle gets to know several."""
    lookup = names(a_test="127.0.0.1", b_test="127.0.0.2")
    with (
        Sink(sinks.answering(), host="127.0.0.2", port=happy.port) as other,
        closing(Engine(AddressGuard(LOOPBACK), window=300, lookup=lookup)) as engine,
    ):
        for turn in range(3):
            requests = []
            for n in range(300):
                sink, host = ((happy, "a.test"), (other, "b.test"))[n % 2]
                method = ("POST", "PUT", "GET")[(n + turn) % 3]
                body = b"" if method == "GET" else f"{turn}-{n}".encode()
                url = sink.url(f"/{turn}-{n}", host=host)
                requests.append(request(url, method=method, body=body))
            responses = send(engine, *requests)
            assert {response.status for response in responses} == {200}
            assert [each.address for each in responses] == ["127.0.0.1", "127.0.0.2"] * 150
    for remainder, sink in enumerate((happy, other)):
        assert sink.connections <= 300
        expected = set()
        for turn in range(3):
            for n in range(remainder, 300, 2):
                method = ("POST", "PUT", "GET")[(n + turn) % 3]
                body = b"" if method == "GET" else f"{turn}-{n}".encode()
                expected.add((f"{method} /{turn}-{n} HTTP/1.1", body))
        assert {(seen.line, seen.body) for seen in sink.requests} == expected
        assert len(sink.requests) == 450


def test_a_handle_keeps_nothing_of_its_last_transfer(engine: Engine) -> None:
    lines = b"".join(b"X-%d: %s\r\n" % (n, b"a" * 1000) for n in range(100))
    long = b"HTTP/1.1 200 OK\r\n" + lines + b"Content-Length: 5\r\n\r\nhello"
    with Sink(sinks.answering(long)) as sink:
        url = sink.url()
        for _ in range(4):  # more than one answer's headers may have
            (response,) = send(engine, request(url))
            assert (response.status, response.body, response.error) == (200, b"hello", "")
            assert response.headers == long[:8192]
    (dead,) = send(engine, request(url))
    assert (dead.status, dead.headers, dead.body, dead.error) == (0, b"", b"", "connect")


def test_an_idle_handle_keeps_no_request(engine: Engine, happy: Sink) -> None:
    body_owner = threading.Event()  # something that can be referred to weakly
    reference = weakref.ref(body_owner)
    send(engine, request(happy.url(), body=bytes(200_000), tag=body_owner))
    del body_owner
    assert reference() is None


@pytest.mark.parametrize(("once", "arrived"), [(True, 2), (False, 3)])
def test_what_may_go_out_only_once_does(engine: Engine, once: bool, arrived: int) -> None:
    """libcurl repeats a request when a connection that was kept alive ends without an answer."""
    with Sink(one_answer_a_connection) as sink:
        first, second = (
            send(engine, Request(sink.url(), b"x", [], 60, once=once))[0] for _ in range(2)
        )
        cut = [seen.body for seen in sink.requests]
    assert first.status == 200
    assert cut == [b"x"] * arrived
    assert (second.status, second.error) == (0, "reset") if once else second.status == 200


async def one_answer_a_connection(
    sink: Sink, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """The first connection is kept alive after an answer; the second request on any of them, or
    the first on the second, is taken in and cut off."""
    await sink.read(reader)
    if sink.connections == 2 and len(sink.requests) == 2:
        return
    writer.write(sinks.OK)
    await writer.drain()
    await sink.read(reader)


def test_deadlines_of_a_handle_are_each_their_own(happy: Sink) -> None:
    go_on = threading.Event()
    with (
        Sink(sinks.held(go_on)) as slow,
        closing(Engine(AddressGuard(LOOPBACK), window=1)) as engine,
    ):
        (short,) = send(engine, request(slow.url(), timeout=0.2))
        timer = threading.Timer(0.6, go_on.set)
        timer.start()
        (long,) = send(engine, request(slow.url()))
        timer.join()
        go_on.clear()
        (again,) = send(engine, request(slow.url(), timeout=0.2))
    assert (short.error, long.error, again.error) == ("timeout", "", "timeout")
    assert long.status == 200


def test_the_queue_is_first_in_first_out(happy: Sink) -> None:
    with closing(Engine(AddressGuard(LOOPBACK), window=1)) as engine:
        for n in range(50):
            engine.submit(request(happy.url(f"/{n}")))
        collect(engine, 50)
    assert [seen.line.split()[1] for seen in happy.requests] == [f"/{n}" for n in range(50)]


def test_more_transfers_than_connections_wait_for_one() -> None:
    with (
        Sink(sinks.slow(0.01)) as sink,
        Sink(sinks.answering()) as other,
        closing(Engine(AddressGuard(LOOPBACK), window=4, max_connections=4)) as engine,
    ):
        urls = [sink.url(), other.url()] * 20
        responses = send(engine, *(request(url) for url in urls))
    assert {response.status for response in responses} == {200}


def test_a_queue_of_refused_requests_does_not_exhaust_the_stack() -> None:
    with Sink(sinks.slow(0.2)) as sink, closing(Engine(AddressGuard(LOOPBACK), window=1)) as engine:
        engine.submit(request(sink.url()))
        for _ in range(3000):
            engine.submit(request("http://10.0.0.1/"))
        responses = collect(engine, 3001)
        assert engine.free == 1
    assert sum(response.error == "address_forbidden" for response in responses) == 3000


def test_nothing_is_left_open() -> None:
    def files() -> set[str]:
        return {fd.name for fd in Path("/proc/self/fd").iterdir() if fd.exists()}

    before = files()
    with Sink(sinks.slow(0.05)) as sink:
        serving = files()
        engine = Engine(AddressGuard(LOOPBACK), lookup=names(hook_test="127.0.0.1"))
        send(engine, *(request(sink.url(host="hook.test")) for _ in range(30)))
        assert sink.connections == 30
        ours = files() - serving
        assert len(ours) >= 30
        inherited = [fd for fd in ours if os.get_inheritable(int(fd))]
        assert not inherited, "sockets would be passed on to child processes"
        engine.close()
    assert files() <= before


def test_close_cuts_what_is_open_and_wake_is_harmless_after_it() -> None:
    with Sink(sinks.silent) as sink:
        engine = Engine(AddressGuard(LOOPBACK), window=2)
        for _ in range(4):
            engine.submit(request(sink.url()))
        assert engine.poll(0.2) == []
        engine.close()
        engine.close()
        engine.wake()


# -- bodies ----------------------------------------------------------------------------------------
def test_a_huge_body_is_cut_while_it_streams() -> None:
    with (
        Sink(sinks.huge) as sink,
        closing(Engine(AddressGuard(LOOPBACK), body_cap=16384)) as engine,
    ):
        # The answer comes long before the deadline.
        (response,) = send(engine, request(sink.url(), timeout=600))
    assert (response.status, response.error) == (200, "too_large")
    assert response.body == b"x" * 16384
    assert sink.sent < 32 * 2**20, "the whole body was read"


def test_a_body_somewhat_over_the_cap_is_read_to_its_end(engine: Engine) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n" + b"y" * 60000
    with Sink(sinks.answering(answer)) as sink:
        for _ in range(3):
            (response,) = send(engine, request(sink.url()))
            assert (response.status, response.error) == (200, "")
            assert response.body == b"y" * 16384
        assert sink.connections == 1


def test_headers_are_capped(engine: Engine) -> None:
    many = b"".join(b"X-%d: %s\r\n" % (n, b"z" * 1000) for n in range(40))
    with Sink(
        sinks.answering(b"HTTP/1.1 200 OK\r\n" + many + b"Content-Length: 0\r\n\r\n")
    ) as sink:
        (response,) = send(engine, request(sink.url()))
    assert (response.status, response.error, len(response.headers)) == (200, "", 8192)


@pytest.mark.parametrize("line", [b"X: " + b"z" * 1000 + b"\r\n", b"X:\r\n"])
def test_a_flood_of_headers_is_cut(engine: Engine, line: bytes) -> None:
    with Sink(sinks.answering(b"HTTP/1.1 200 OK\r\n" + line * 50000)) as sink:
        (response,) = send(engine, request(sink.url()))
    assert (response.status, response.error) == (0, "too_large")
    assert "headers" in response.detail
    assert "libcurl" not in response.detail


def test_encodings_are_neither_asked_for_nor_undone(engine: Engine) -> None:
    bomb = gzip.compress(bytes(20 * 2**20))
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(bomb)}\r\n\r\n"
    with Sink(sinks.answering(head.encode() + bomb)) as sink:
        (response,) = send(engine, request(sink.url()))
    assert "accept-encoding" not in sink.requests[0].headers
    assert response.status == 200
    assert response.body == bomb[:16384]


def test_cookies_are_not_kept(engine: Engine) -> None:
    answer = sinks.OK.replace(b"\r\n\r\n", b"\r\nSet-Cookie: a=b; Path=/\r\n\r\n")
    with Sink(sinks.answering(answer)) as sink:
        for _ in range(2):
            send(engine, request(sink.url()))
    assert all("cookie" not in seen.headers for seen in sink.requests)


# -- failures --------------------------------------------------------------------------------------
def test_a_refused_connection(engine: Engine) -> None:
    (response,) = send(engine, request(f"http://127.0.0.1:{sinks.refusing_port()}/"))
    assert (response.status, response.error) == (0, "connect")
    assert "connect" in response.detail.lower()


@pytest.mark.parametrize(
    ("before", "status"),
    [(b"", 0), (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", 200)],
)
def test_a_reset_connection(engine: Engine, before: bytes, status: int) -> None:
    with Sink(sinks.resetting(before)) as sink:
        (response,) = send(engine, request(sink.url()))
    assert (response.status, response.error) == (status, "reset")


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"])
def test_an_answer_that_ends_too_soon(engine: Engine, start: bytes) -> None:
    with Sink(sinks.answering(start, close=True)) as sink:
        (response,) = send(engine, request(sink.url()))
    assert response.error == "reset"
    assert response.status == (200 if start else 0)


@pytest.mark.parametrize(
    "start",
    [
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/pl",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nServer: x\r\n",
    ],
)
@pytest.mark.parametrize(("close", "error"), [(True, "reset"), (False, "timeout")])
def test_an_answer_whose_headers_never_end(
    engine: Engine, start: bytes, close: bool, error: str
) -> None:
    """It says 200, and is none: whoever looks at the status alone must not take it for one."""
    with Sink(sinks.answering(start, close=close)) as sink:
        (response,) = send(engine, request(sink.url(), timeout=1.0 if error == "timeout" else 60.0))
    assert (response.status, response.error, response.headers) == (0, error, b"")
    assert response.detail


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\nServer: x\n\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nT: a\r\n\r\n",
    ],
)
def test_headers_that_end_in_other_ways(engine: Engine, answer: bytes) -> None:
    with Sink(sinks.answering(answer, close=True)) as sink:
        (response,) = send(engine, request(sink.url()))
    assert (response.status, response.error, response.body) == (200, "", b"ok")


def test_an_answer_that_is_not_http(engine: Engine) -> None:
    with Sink(sinks.answering(b"SSH-2.0-OpenSSH_9.2\x1b[31m\r\n", close=True)) as sink:
        (response,) = send(engine, request(sink.url()))
    assert (response.status, response.error) == (0, "other")
    assert response.detail.isprintable()


def test_a_name_that_does_not_exist() -> None:
    asked: list[str] = []

    def lookup(name: str) -> list[str]:
        asked.append(name)
        return names()(name)

    with closing(Engine(AddressGuard(), lookup=lookup)) as engine:
        engine._names._negative_ttl = 600.0
        for _ in range(3):
            (response,) = send(engine, request("http://nowhere.test/"))
            assert (response.status, response.error, response.address) == (0, "dns", "")
            assert "nowhere.test" in response.detail
    assert asked == ["nowhere.test"], "the failure was not cached"


@pytest.mark.parametrize("failing", [RuntimeError("bug"), UnicodeError("label"), OSError("x")])
def test_a_lookup_that_fails_in_its_own_way(failing: Exception) -> None:
    def lookup(name: str) -> list[str]:
        raise failing

    with closing(Engine(AddressGuard(), lookup=lookup)) as engine:
        responses = send(engine, *(request(f"http://{n}.test/") for n in range(20)))
    assert {response.error for response in responses} == {"dns"}


def test_the_systems_resolver_is_asked_by_default(engine: Engine, happy: Sink) -> None:
    (found,) = send(engine, request(happy.url(host="localhost")))
    engine.submit(request("http://nowhere.invalid/", timeout=600))
    (missing,) = collect(engine, 1, 600)  # a resolver without a network may need minutes
    assert (found.status, found.address) == (200, "127.0.0.1")
    assert happy.requests[0].headers["host"] == f"localhost:{happy.port}"
    assert missing.error == "dns"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "ftp://127.0.0.1/",
        "file:///etc/passwd",
        "http://u:pw@127.0.0.1/",
        "\ud800",
    ],
)
def test_a_bad_url(engine: Engine, url: str) -> None:
    (response,) = send(engine, request(url))
    assert (response.status, response.error) == (0, "bad_url")
    assert response.detail.endswith(".")
    assert "pw" not in response.detail


@pytest.mark.parametrize(
    "header",
    [
        ("x", "a\r\nInjected: 1"),
        ("x", "a\nb"),
        ("x", "a\0b"),
        ("x\r\nInjected", "1"),
        ("x y", "1"),
        ("", "1"),
        ("Host", "other.test"),
        ("content-length", "0"),
        ("Transfer-Encoding", "chunked"),
        ("Connection", "close"),
    ],
)
def test_a_header_that_may_not_be_sent(
    engine: Engine, happy: Sink, header: tuple[str, str]
) -> None:
    (response,) = send(engine, request(happy.url(), headers=[header]))
    assert (response.status, response.error) == (0, "other")
    assert "header" in response.detail
    assert happy.connections == 0


def test_a_method_that_is_no_token(engine: Engine, happy: Sink) -> None:
    (response,) = send(engine, request(happy.url(), method="GET / HTTP/1.1\r\nX: "))
    assert response.error == "other"
    assert happy.connections == 0


def test_requests_of_one_outline_share_what_is_fixed(engine: Engine, happy: Sink) -> None:
    shared = outline(happy.url(), [JSON, ("x-shared", "小米")], 60.0, own=["x-number"])
    made = [shared.request(b"%d" % n, [f"x-number: {n}"], n) for n in range(20)]
    large = shared.request(b"x" * 1_500_000, ["x-number: 20"], 20)
    answers = send(engine, *made, large, request(happy.url(), headers=[]))
    assert [answer.status for answer in answers] == [200] * 22
    assert {answer.request.tag for answer in answers} == {*range(21), None}
    seen = {one.headers.get("x-number", ""): one for one in happy.requests}
    assert set(seen) == {"", *map(str, range(21))}
    for n in range(20):
        assert seen[str(n)].body == b"%d" % n
    for number, one in seen.items():
        assert ("x-shared" in one.headers, "content-type" in one.headers) == (bool(number),) * 2
        assert "expect" not in one.headers


@pytest.mark.parametrize(
    ("fields", "lines", "error"),
    [
        ({"url": "ftp://sink.test/"}, [], "bad_url"),
        ({"headers": [("Host", "other.test")]}, [], "other"),
        ({"method": "BAD METHOD"}, [], "other"),
        ({"own": ["content-length"]}, [], "other"),
        ({"own": ["x y"]}, [], "other"),
        ({"own": ["x"]}, ["x: 1\r\nhost: other.test"], "other"),
        ({"own": ["x"]}, ["x: 1", "x: 2\n"], "other"),
    ],
)
def test_an_outline_is_as_strict_as_a_request(
    engine: Engine, happy: Sink, fields: dict[str, Any], lines: list[str], error: str
) -> None:
    made = outline(**{"url": happy.url(), "headers": [JSON], "timeout": 60.0, **fields})
    (answer,) = send(engine, made.request(b"{}", lines, "tag"))
    assert (answer.status, answer.error, answer.request.tag) == (0, error, "tag")
    assert answer.detail
    assert happy.requests == []


def test_an_outline_is_narrowed_to_its_networks(engine: Engine, happy: Sink) -> None:
    elsewhere = outline(happy.url(), [JSON], 60.0, networks=networks("192.0.2.0/24"))
    (answer,) = send(engine, elsewhere.request(b"{}", [], None))
    assert (answer.error, happy.requests) == ("address_forbidden", [])


def test_a_redirect_is_not_followed(engine: Engine, happy: Sink) -> None:
    for code in (301, 302, 303, 307, 308):
        answer = f"HTTP/1.1 {code} X\r\nLocation: {happy.url()}\r\nContent-Length: 0\r\n\r\n"
        with Sink(sinks.answering(answer.encode())) as sink:
            (response,) = send(engine, request(sink.url()))
        assert (response.status, response.error) == (code, "")
        assert happy.url().encode() in response.headers
    assert happy.connections == 0


# -- waking ----------------------------------------------------------------------------------------
def test_wake_ends_a_poll(engine: Engine) -> None:
    started = time.monotonic()
    timer = threading.Timer(0.2, engine.wake)
    timer.start()
    assert engine.poll(180) == []
    assert 0.2 <= time.monotonic() - started < 120
    timer.join()


def test_wake_before_a_poll_counts_once(engine: Engine) -> None:
    engine.wake()
    engine.wake()
    started = time.monotonic()
    assert engine.poll(180) == []
    assert time.monotonic() - started < 120
    started = time.monotonic()
    assert engine.poll(0.2) == []
    assert time.monotonic() - started >= 0.2


# -- names and the guard ---------------------------------------------------------------------------
@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "127.0.0.1.",
        "[::ffff:127.0.0.1]",
    ],
)
def test_loopback_is_refused_in_every_spelling(happy: Sink, host: str) -> None:
    with closing(Engine(AddressGuard())) as engine:
        (response,) = send(engine, request(happy.url(host=host)))
        assert (response.status, response.error) == (0, "address_forbidden")
        assert "127.0.0.1 is a loopback address." in response.detail
    with closing(Engine(AddressGuard(LOOPBACK))) as engine:  # and is reached when it is allowed
        (response,) = send(engine, request(happy.url(host=host)))
        assert (response.status, response.address) == (200, "127.0.0.1")
    assert happy.connections == 1


def test_metadata_is_refused_even_if_everything_is_allowed() -> None:
    lookup = names(rebound_test="169.254.169.254", localhost="127.0.0.1")
    with closing(Engine(AddressGuard(["0.0.0.0/0", "::/0"]), lookup=lookup)) as engine:
        for host in ("169.254.169.254", "[fd00:ec2::254]", "0xa9fea9fe", "rebound.test"):
            (response,) = send(engine, request(f"http://{host}/latest/meta-data/"))
            assert response.error == "address_forbidden", host


def test_one_forbidden_address_refuses_the_name(happy: Sink) -> None:
    lookup = names(mixed_test="127.0.0.1 10.0.0.1")
    with closing(Engine(AddressGuard(LOOPBACK), lookup=lookup)) as engine:
        (response,) = send(engine, request(happy.url(host="mixed.test")))
    assert response.error == "address_forbidden"
    assert "10.0.0.1" in response.detail
    assert happy.connections == 0


def test_a_name_that_is_bound_again_to_loopback_is_refused(happy: Sink) -> None:
    """DNS rebinding: a permitted address for the guard, another one for the connection."""
    asked: list[str] = []

    def lookup(name: str) -> list[str]:
        asked.append(name)
        return ["192.0.2.1"] if len(asked) == 1 else ["127.0.0.1"]

    guard = AddressGuard(["192.0.2.0/24"])
    errors = set()
    with closing(Engine(guard, lookup=lookup, dns_ttl=0.1)) as engine:
        end = time.monotonic() + 120
        while "address_forbidden" not in errors and time.monotonic() < end:
            (response,) = send(engine, request(happy.url(host="rebind.test"), timeout=0.2))
            errors.add(response.error)
    assert len(asked) >= 2
    assert errors <= {"connect", "timeout", "address_forbidden"}
    assert "address_forbidden" in errors
    assert happy.connections == 0


class ForgetfulGuard(AddressGuard):
    """Judges rightly only after the first look, as if the vetting had been passed by a trick."""

    looks = 0

    def reason(self, text: str) -> str:
        self.looks += 1
        return super().reason(text) if self.looks > 1 else ""


@pytest.mark.parametrize("host", ["127.0.0.1", "hook.test"])
def test_the_guard_looks_again_at_the_socket(happy: Sink, host: str) -> None:
    guard = ForgetfulGuard()
    with closing(Engine(guard, lookup=names(hook_test="127.0.0.1"))) as engine:
        (response,) = send(engine, request(happy.url(host=host)))
    assert guard.looks == 2
    assert (response.status, response.error) == (0, "address_forbidden")
    assert "loopback" in response.detail
    assert happy.connections == 0


# -- a request's own networks ----------------------------------------------------------------------
def networks(*texts: str) -> tuple[Network, ...]:
    return tuple(map(ip_network, texts))


def test_a_requests_networks_are_all_that_it_may_reach(engine: Engine, happy: Sink) -> None:
    within = request(happy.url(), networks=networks("192.0.2.0/24", "127.0.0.1/32"))
    outside = request(happy.url(), networks=networks("127.0.0.2/32", "::/0"))
    mapped = request(happy.url(), networks=networks("::ffff:127.0.0.0/104"))
    free = request(happy.url())
    answers = send(engine, within, outside, mapped, free, outside)
    assert [each.status for each in answers] == [200, 0, 200, 200, 0]
    assert {answers[1].error, answers[4].error} == {"address_forbidden"}
    assert answers[1].detail == "127.0.0.1 is not in a network that is allowed for this request."
    assert len(happy.requests) == 3
    assert engine.free == engine.window


def test_a_kept_connection_is_no_way_around_a_requests_networks(
    engine: Engine, happy: Sink
) -> None:
    (first,) = send(engine, request(happy.url()))
    (second,) = send(engine, request(happy.url(), networks=networks("10.0.0.0/8")))
    assert (first.status, second.status, second.error) == (200, 0, "address_forbidden")
    assert len(happy.requests) == 1


def test_a_requests_networks_open_nothing(happy: Sink) -> None:
    everything = networks("0.0.0.0/0", "::/0", "127.0.0.0/8")
    lookup = names(hook_test="127.0.0.1", mixed_test="8.8.8.8 10.0.0.1")
    with closing(Engine(AddressGuard(), lookup=lookup)) as engine:
        for host in ("127.0.0.1", "hook.test", "mixed.test", "169.254.169.254"):
            (response,) = send(engine, request(happy.url(host=host), networks=everything))
            assert (response.status, response.error) == (0, "address_forbidden"), host
    assert happy.connections == 0


def test_only_a_names_addresses_inside_the_requests_networks_are_tried(happy: Sink) -> None:
    lookup = names(hook_test="127.0.0.9 127.0.0.1 127.0.0.8")
    with (
        Sink(sinks.answering(), host="127.0.0.9", port=happy.port) as first,
        closing(Engine(AddressGuard(LOOPBACK), lookup=lookup)) as engine,
    ):
        url = happy.url(host="hook.test")
        (inside,) = send(engine, request(url, networks=networks("127.0.0.0/30")))
        (outside,) = send(engine, request(url, networks=networks("127.0.1.0/24")))
        (free,) = send(engine, request(url))
        assert (len(first.requests), len(happy.requests)) == (1, 1)
    assert (inside.status, inside.address) == (200, "127.0.0.1")
    assert (outside.status, outside.error) == (0, "address_forbidden")
    assert outside.detail.startswith("hook.test: 127.0.0.9 is not in a network")
    assert (free.status, free.address) == (200, "127.0.0.9")


class CarelessAdmission(Admission):
    """Lets through what a request's networks exclude, as if the vetting had been passed by."""

    def _narrowed(self, job: Any, addresses: Any) -> Any:
        return addresses


def test_a_requests_networks_are_looked_at_again_at_the_socket(
    engine: Engine, happy: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine._admission, "__class__", CarelessAdmission)
    (response,) = send(engine, request(happy.url(), networks=networks("10.0.0.0/8")))
    assert (response.status, response.error) == (0, "address_forbidden")
    assert happy.connections == 0


def test_a_requests_networks_behind_a_proxy_that_takes_names(happy: Sink) -> None:
    """It picks the address itself, so every one that is known has to be inside."""
    lookup = names(hook_test="8.8.8.8", both_test="8.8.8.8 9.9.9.9", proxy_test="127.0.0.1")
    own = networks("8.8.8.0/24")
    with closing(Engine(AddressGuard(), proxy=happy.url(""), lookup=lookup)) as engine:
        urls = ("http://hook.test/", "http://both.test/", "http://only-the-proxy-knows.test/")
        inside, both, unknown = send(engine, *(request(url, networks=own) for url in urls))
    assert inside.status == 200
    assert {both.error, unknown.error} == {"address_forbidden"}
    assert "cannot be resolved here" in unknown.detail
    assert len(happy.requests) == 1


def test_answers_are_cached_and_a_new_one_counts_despite_a_kept_connection(happy: Sink) -> None:
    answers = ["127.0.0.1"]
    asked: list[str] = []

    def lookup(name: str) -> list[str]:
        asked.append(name)
        return list(answers)

    with (
        Sink(sinks.answering(), host="127.0.0.2", port=happy.port) as moved,
        closing(Engine(AddressGuard(LOOPBACK), lookup=lookup, dns_ttl=600)) as engine,
    ):
        url = happy.url(host="hook.test")
        responses = send(engine, *(request(url) for _ in range(20)))
        assert {response.address for response in responses} == {"127.0.0.1"}
        assert len(asked) == 1
        answers[:] = ["127.0.0.2"]
        known = engine._names._answers["hook.test"]
        known.fresh_until = known.usable_until = 0.0
        (response,) = send(engine, request(url))
        assert response.address == "127.0.0.2"
        assert moved.requests[0].headers["host"] == f"hook.test:{happy.port}"
        # A further name on the first address is not confused by any of it.
        answers[:] = ["127.0.0.1"]
        (other,) = send(engine, request(happy.url(host="other.test")))
        assert other.address == "127.0.0.1"


def test_another_address_is_tried_when_one_does_not_answer(happy: Sink) -> None:
    lookup = names(hook_test="127.0.0.9 127.0.0.8 127.0.0.1")
    with closing(Engine(AddressGuard(LOOPBACK), lookup=lookup)) as engine:
        for _ in range(2):
            (response,) = send(engine, request(happy.url(host="hook.test")))
            assert (response.status, response.address) == (200, "127.0.0.1")
        assert (happy.connections, len(happy.requests)) == (1, 2)
        (dead,) = send(engine, request(f"http://hook.test:{sinks.refusing_port()}/"))
    assert dead.error == "connect"


def test_an_address_that_answered_is_the_first_to_be_tried_from_then_on(happy: Sink) -> None:
    lookup = names(hook_test="127.0.0.9 127.0.0.1")
    with ExitStack() as stack:
        silent = stack.enter_context(socket.create_server(("127.0.0.9", happy.port), backlog=0))
        waiting = [stack.enter_context(socket.socket()) for _ in range(3)]
        for one in waiting:  # its backlog is full: who comes now hears nothing
            one.setblocking(False)
            one.connect_ex(silent.getsockname())
        engine = stack.enter_context(
            closing(Engine(AddressGuard(LOOPBACK), lookup=lookup, dns_ttl=600))
        )
        url = happy.url(host="hook.test")
        (first,) = send(engine, request(url))
        for one in (silent, *waiting):  # they knock again and again
            one.close()
        again = stack.enter_context(Sink(sinks.answering(), host="127.0.0.9", port=happy.port))
        (second,) = send(engine, request(url))
    assert (first.status, second.status) == (200, 200)
    assert first.seconds >= 1.5, "the silent one came first"
    assert (second.address, again.connections) == ("127.0.0.1", 0)


def test_an_address_that_answered_stays_the_first_when_its_name_is_looked_up_again() -> None:
    lookup = names(hook_test="127.0.0.9 127.0.0.1")
    with closing(Resolver(AddressGuard(LOOPBACK), lambda: None, lookup, ttl=0)) as resolver:
        for expected in (["127.0.0.9", "127.0.0.1"], ["127.0.0.1", "127.0.0.9"]):
            resolver.ask("hook.test")
            deadline = time.monotonic() + 60
            while not (answers := resolver.collect()):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert answers[0].addresses == expected
            answers[0].prefer("127.0.0.1")


def test_slow_names_do_not_hold_up_others() -> None:
    """Names that were slow once wait among themselves, however many they are."""
    came, go_on = threading.Event(), threading.Event()
    go_on.set()

    def lookup(name: str) -> list[str]:
        if name.startswith("dead"):
            time.sleep(1.1)
            go_on.wait(600)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return ["8.8.8.8"]

    def wait_for(expected: set[str]) -> None:
        while expected:
            assert came.wait(120)
            came.clear()
            expected -= {answer.name for answer in resolver.collect()}

    resolver = Resolver(AddressGuard(), came.set, lookup, negative_ttl=0.0)
    with closing(resolver):
        started = time.monotonic()
        dead = [f"dead{n}.test" for n in range(MAX_THREADS)]
        for name in dead:
            assert resolver.ask(name) is None
        resolver.ask("first.test")
        wait_for({"first.test"})
        assert time.monotonic() - started > 1, "all threads were busy, so it had to wait"
        wait_for(set(dead) - resolver._answers.keys())
        go_on.clear()
        try:
            for name in dead:
                resolver.ask(name)
            resolver.ask("fresh.test")
            wait_for({"fresh.test"})  # while the others are still looked up
        finally:
            go_on.set()


def test_a_thread_that_has_just_taken_a_name_is_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be interrupted before it says so; the next name needs another thread."""
    got, go_on, looked_up = SimpleQueue[str](), threading.Event(), SimpleQueue[str]()

    class Names(SimpleQueue[str | None]):
        def get(self, block: bool = True, timeout: float | None = None) -> str | None:
            name = super().get(block, timeout)
            if name not in (None, "first.test"):
                got.put(name)
                go_on.wait(600)
            return name

    monkeypatch.setattr(resolver_module, "SimpleQueue", Names)
    lane = resolver_module._Lane(2, looked_up.put)
    with closing(lane):
        lane.put("first.test")
        assert looked_up.get(timeout=60) == "first.test"
        try:
            lane.put("dead.test")
            assert got.get(timeout=60) == "dead.test"
            lane.put("other.test")
            assert got.get(timeout=60) == "other.test"
        finally:
            go_on.set()


def test_a_name_for_which_there_was_no_thread_is_looked_up_for_the_next_request(
    happy: Sink,
) -> None:
    lookup = names(hook_test="127.0.0.1")
    with closing(Engine(AddressGuard(LOOPBACK), lookup=lookup)) as engine:
        url = happy.url(host="hook.test")
        with threads.refusing("resolver"):
            (first,) = send(engine, request(url, timeout=0.2))
        (second,) = send(engine, request(url))
    assert (first.error, second.status) == ("timeout", 200)


def test_dead_names_that_nobody_knows_yet_do_not_hold_up_others() -> None:
    """Neither a name that is asked for the first time, nor those that are in use."""
    came, go_on = threading.Event(), threading.Event()

    def lookup(name: str) -> list[str]:
        if name.startswith("dead"):
            go_on.wait(120)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return ["8.8.8.8"]

    with closing(Resolver(AddressGuard(), came.set, lookup, ttl=600)) as resolver:

        def wait_for(name: str) -> None:
            while name not in {answer.name for answer in resolver.collect()}:
                assert came.wait(100)
                came.clear()

        resolver.ask("used.test")
        wait_for("used.test")
        for number in range(40):
            resolver.ask(f"dead{number}.test")
        resolver.ask("new.test")
        wait_for("new.test")
        for number in range(40, 200):  # more than there are threads
            resolver.ask(f"dead{number}.test")
        resolver._answers["used.test"].fresh_until = 0.0
        assert resolver.ask("used.test"), "it is refreshed beside its use"
        wait_for("used.test")
        go_on.set()


def test_threads_of_the_resolver_end_when_nothing_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resolver_module, "_IDLE_SECONDS", 0.1)
    came = threading.Event()
    before = set(threading.enumerate())  # those of an earlier test's resolver may still be ending
    with closing(Resolver(AddressGuard(), came.set, lambda _name: ["8.8.8.8"])) as resolver:
        for number in range(50):
            resolver.ask(f"name{number}.test")
        deadline = time.monotonic() + 60
        while set(threading.enumerate()) - before and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not set(threading.enumerate()) - before
        assert len(resolver.collect()) == 50
        came.clear()
        resolver.ask("later.test")
        assert came.wait(60)


# -- proxies ---------------------------------------------------------------------------------------
PROXY_VARIABLES = ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY")


def test_the_environments_proxy_is_ignored(monkeypatch: pytest.MonkeyPatch, happy: Sink) -> None:
    with Sink(sinks.answering()) as proxy:
        for variable in PROXY_VARIABLES:
            monkeypatch.setenv(variable, proxy.url(""))
        with closing(Engine(AddressGuard(LOOPBACK))) as engine:
            (response,) = send(engine, request(happy.url()))
    assert response.status == 200
    assert len(happy.requests) == 1
    assert proxy.connections == 0


@pytest.mark.parametrize("proxy_host", ["127.0.0.1", "proxy.test"])
def test_a_configured_proxy_gets_everything(
    monkeypatch: pytest.MonkeyPatch, happy: Sink, proxy_host: str
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    lookup = names(hook_test="8.8.8.8", proxy_test="127.0.0.1", inside_test="10.0.0.1")
    url = happy.url("", host=proxy_host).replace("http://", "http://user:pw@")
    with closing(Engine(AddressGuard(), proxy=url, lookup=lookup)) as engine:
        known, unknown, inside, literal, metadata = send(
            engine,
            request("http://hook.test/a"),
            request("http://only-the-proxy-knows.test/b"),
            request("http://inside.test/c"),
            request(happy.url("/d")),
            request("http://169.254.169.254/e"),
        )
    assert (known.status, known.address) == (200, "127.0.0.1")
    assert unknown.status == 200
    assert {each.error for each in (inside, literal, metadata)} == {"address_forbidden"}
    lines = sorted(seen.line for seen in happy.requests)
    assert lines == [
        "POST http://hook.test/a HTTP/1.1",
        "POST http://only-the-proxy-knows.test/b HTTP/1.1",
    ]
    assert all("proxy-authorization" in seen.headers for seen in happy.requests)


def test_a_proxy_that_refuses_the_tunnel() -> None:
    refusal = b"HTTP/1.1 403 Forbidden\r\nX-Secret: 1\r\nContent-Length: 0\r\n\r\n"
    lookup = names(hook_test="8.8.8.8")
    with (
        Sink(sinks.answering(refusal)) as proxy,
        closing(Engine(AddressGuard(), proxy=proxy.url(""), lookup=lookup)) as engine,
    ):
        (response,) = send(engine, request("https://hook.test/"))
    assert proxy.requests[0].line == "CONNECT hook.test:443 HTTP/1.1"
    assert (response.status, response.error, response.headers) == (0, "connect", b"")
    assert "403" in response.detail


@pytest.mark.parametrize(
    ("scheme", "asked"), [("socks5", "8.8.8.8:80"), ("socks5h", "hook.test:80")]
)
def test_a_socks_proxy(scheme: str, asked: str) -> None:
    lookup = names(hook_test="8.8.8.8")
    with Sink(sinks.socks5) as proxy:
        url = f"{scheme}://127.0.0.1:{proxy.port}"
        with closing(Engine(AddressGuard(), proxy=url, lookup=lookup)) as engine:
            (response,) = send(engine, request("http://hook.test/"))
    assert response.status == 200
    assert proxy.asked == [asked]


@pytest.mark.parametrize("is_mute", [False, True])
def test_an_address_without_a_route_from_a_socks_proxy(is_mute: bool) -> None:
    behaviour = partial(sinks.socks5, is_mute=is_mute, has_route=lambda target: target == "8.8.4.4")
    with Sink(behaviour) as proxy:
        url, lookup = f"socks5://127.0.0.1:{proxy.port}", names(hook_test="8.8.8.8 8.8.4.4")
        with closing(Engine(AddressGuard(), proxy=url, lookup=lookup)) as engine:
            (response,) = send(engine, request("http://hook.test/"))
    assert (response.status, len(proxy.requests)) == (200, 1)
    assert proxy.asked == ["8.8.8.8:80", "8.8.4.4:80"]


def test_a_request_that_may_have_arrived_goes_to_no_other_address_of_a_socks_proxy() -> None:
    """The kept-alive connection ends without an answer, and there is no route any more."""

    async def answer_first(
        sink: Sink, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await sink.read(reader)
        writer.write(sinks.OK)
        await sink.read(reader)

    proxy: Sink
    behaviour = partial(
        sinks.socks5, has_route=lambda _: len(proxy.asked) == 1, behaviour=answer_first
    )
    with Sink(behaviour) as proxy:
        url, lookup = f"socks5://127.0.0.1:{proxy.port}", names(hook_test="8.8.8.8 8.8.4.4")
        with closing(Engine(AddressGuard(), proxy=url, lookup=lookup)) as engine:
            (first,) = send(engine, request("http://hook.test/"))
            (second,) = send(engine, request("http://hook.test/"))
    assert (first.status, second.status, second.error) == (200, 0, "connect")
    assert (len(proxy.requests), proxy.asked) == (2, ["8.8.8.8:80"] * 2)


def test_a_proxy_that_is_not_there() -> None:
    proxy = f"http://127.0.0.1:{sinks.refusing_port()}"
    lookup = names(hook_test="8.8.8.8")
    with closing(Engine(AddressGuard(), proxy=proxy, lookup=lookup)) as engine:
        (response,) = send(engine, request("http://hook.test/"))
    assert (response.status, response.error) == (0, "connect")


# -- TLS -------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate of hook.test, with its key in the same file."""
    path = tmp_path_factory.mktemp("tls") / "hook.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    names = ["-subj", "/CN=hook.test", "-addext", "subjectAltName=DNS:hook.test"]
    files = ["-keyout", str(path), "-out", f"{path}.crt"]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


@pytest.fixture
def tls_sink(certificate: Path) -> Iterator[Sink]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with Sink(sinks.answering(), tls=context) as sink:
        yield sink


@pytest.mark.parametrize(
    ("trusted", "host", "status", "error"),
    [(True, "hook.test", 200, ""), (False, "hook.test", 0, "tls"), (True, "other.test", 0, "tls")],
)
def test_certificates_are_verified(
    tls_sink: Sink, certificate: Path, trusted: bool, host: str, status: int, error: str
) -> None:
    lookup = names(hook_test="127.0.0.1", other_test="127.0.0.1")
    ca_file = f"{certificate}.crt" if trusted else ""
    with closing(Engine(AddressGuard(LOOPBACK), ca_file=ca_file, lookup=lookup)) as engine:
        (response,) = send(engine, request(tls_sink.url(host=host)))
    assert (response.status, response.error) == (status, error)
    assert len(tls_sink.requests) == (1 if trusted and not error else 0)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_server_that_asks_for_a_client_certificate(
    certificate: Path, version: ssl.TLSVersion
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = context.maximum_version = version
    context.load_cert_chain(certificate)
    context.load_verify_locations(f"{certificate}.crt")
    context.verify_mode = ssl.CERT_REQUIRED
    lookup = names(hook_test="127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:  # as servers do it that send an alert before they close
            peer, _ = listener.accept()
            with peer, suppress(OSError):
                raw = peer.dup()
                try:
                    context.wrap_socket(peer, server_side=True)
                finally:  # the alert is lost if the request is not read
                    raw.shutdown(socket.SHUT_WR)
                    while raw.recv(4096):
                        pass
                    raw.close()

        threading.Thread(target=refuse, daemon=True).start()
        address = f"https://hook.test:{listener.getsockname()[1]}/"
        ca_file = f"{certificate}.crt"
        with closing(Engine(AddressGuard(LOOPBACK), ca_file=ca_file, lookup=lookup)) as engine:
            (response,) = send(engine, request(address))
    assert (response.status, response.error) == (0, "tls")
    assert "client certificate" in response.detail


def test_tls_to_a_server_without_it(engine: Engine, happy: Sink) -> None:
    (response,) = send(engine, request(happy.url().replace("http:", "https:"), timeout=0.5))
    assert response.status == 0
    assert response.error in ("tls", "timeout")
    assert happy.requests == []


# -- settings --------------------------------------------------------------------------------------
def test_an_engine_from_settings(settings: Any, happy: Sink) -> None:
    settings.OUTBOUND_ALLOW, settings.OUTBOUND_PROXY = [], ""
    with closing(engine_from_settings(window=3)) as engine:
        assert engine.window == 3
        (response,) = send(engine, request(happy.url()))
        assert response.error == "address_forbidden"
    settings.OUTBOUND_ALLOW, settings.OUTBOUND_PROXY = ["127.0.0.1/32"], happy.url("")
    with closing(engine_from_settings()) as engine:
        (response,) = send(engine, request("http://127.0.0.1:9/through"))
    assert response.status == 200
    assert happy.requests[0].line == "POST http://127.0.0.1:9/through HTTP/1.1"
