"""The web server under clients that are slow, greedy or rude: others are answered all the while."""

import contextlib
import gzip
import http.client
import json
import os
import re
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from msgplatform.doors.api.access import keys
from msgplatform.doors.web import bodies
from msgplatform.doors.web.application import CLOSE_EVERY_AT_START
from msgplatform.models import Biz
from notify.models import BizMsg
from tests.support.api_server import Server

pytestmark = pytest.mark.django_db(transaction=True)
MESSAGES = "/api/v1/messages"
SOON = 180.0
# More than threads, and more connections than the server was once able to hold.
SLOW = 64
IDLE = 10_000 if os.environ.get("MSGPLATFORM_FULL_LOAD") else 1500


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, django_db_setup: None) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("web") / "log", head_seconds=10)
    yield server
    server.stop()


@pytest.fixture
def key(db: None, work_redis: object) -> str:
    return keys.create(Biz.objects.create(name="orders"), "test", ["events:write"])[1]


def head(method: str, path: str, length: int | None, *more: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *more]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def publish(key: str, number: int) -> bytes:
    body = json.dumps({"event_type": "a", "payload": number}).encode()
    about = (f"Authorization: Bearer {key}", "Content-Type: application/json")
    return head("POST", MESSAGES, len(body), *about) + body


def connect(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=SOON)


def everything(connection: socket.socket) -> bytes:
    """What comes until the server closes; a reset counts as that."""
    said = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            said += part
    return said


def answers_others(server: Server, key: str) -> None:
    """Health, a page and a publish."""
    assert server.request("GET", "/healthz")[0] == 200
    assert server.request("GET", "/admin/login/")[0] == 200
    with connect(server) as connection:
        connection.sendall(publish(key, 1))
        assert connection.recv(65536).startswith(b"HTTP/1.1 202")


@pytest.mark.parametrize("path", ["/admin/login/", "/rpc/", MESSAGES, "/nowhere"])
def test_slow_bodies_hold_nobody_up(server: Server, key: str, path: str) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(SLOW):
            connection = stack.enter_context(connect(server))
            connection.sendall(head("POST", path, 1000) + b"{")
        answers_others(server, key)


def test_many_idle_connections(server: Server, key: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, IDLE + 500)), hard))
    with contextlib.ExitStack() as stack:
        for _ in range(IDLE):
            stack.enter_context(connect(server))
        answers_others(server, key)


def test_a_slow_head_is_cut_off(server: Server) -> None:
    with connect(server) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.")
        started = time.monotonic()
        everything(connection)
        assert time.monotonic() - started < SOON


@pytest.mark.parametrize("path", [MESSAGES, "/admin/login/"])
def test_a_slow_body_is_told(server: Server, path: str) -> None:
    with connect(server) as connection:
        connection.sendall(head("POST", path, 1000) + b"{")
        connection.settimeout(bodies.SECONDS + SOON)
        said = everything(connection)
    assert said.startswith(b"HTTP/1.1 408")
    assert (b"/problems/request-timeout" in said) == (path == MESSAGES)


@pytest.mark.parametrize("path", [MESSAGES, "/admin/login/"])
def test_a_large_body_is_refused_and_the_connection_closes(server: Server, path: str) -> None:
    with connect(server) as connection:
        # Announced, and never sent.
        connection.sendall(head("POST", path, 10**9))
        said = everything(connection)
    assert said.startswith(b"HTTP/1.1 413")
    assert (b"/problems/body-too-large" in said) == (path == MESSAGES)


def test_a_large_body_without_its_length(server: Server, key: str) -> None:
    chunk = b"%x\r\n%s\r\n" % (1024 * 1024, b" " * 1024 * 1024)
    with connect(server) as connection:
        connection.sendall(head("POST", MESSAGES, None, "Transfer-Encoding: chunked"))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(18):
                connection.sendall(chunk)
            connection.sendall(b"0\r\n\r\n")
        said = everything(connection)
    assert said.startswith(b"HTTP/1.1 413")
    answers_others(server, key)


def test_connections_are_closed_now_and_then(server: Server) -> None:
    """So that clients which keep theirs are spread over all workers again after a restart."""
    with connect(server) as connection:
        for _ in range(CLOSE_EVERY_AT_START):
            connection.sendall(head("GET", "/healthz", None))
            answer = connection.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200")
            if b"connection: close" in answer:
                break
        assert b"connection: close" in answer
        assert everything(connection) == b""
    assert server.request("GET", "/healthz")[0] == 200


def test_two_requests_at_once(server: Server, key: str) -> None:
    """Pipelined: answered in their order."""
    with connect(server) as connection:
        last = head("GET", "/healthz", None, "Connection: close")
        connection.sendall(publish(key, 1) + publish(key, 2) + last)
        said = everything(connection)
    assert [part[:3] for part in said.split(b"HTTP/1.1 ")[1:]] == [b"202", b"202", b"200"]
    assert [m.payload for m in BizMsg.objects.order_by("id")] == [b"1", b"2"]


def test_who_leaves_in_the_middle_has_sent_nothing(server: Server, key: str) -> None:
    whole = publish(key, 1)
    for end in (len(whole) - 1, len(whole) - 20):
        with connect(server) as connection:
            connection.sendall(whole[:end])
    answers_others(server, key)
    assert BizMsg.objects.count() == 1


def test_who_closes_one_side(server: Server, key: str) -> None:
    """It may or may not be answered; what it sent whole is there once at most."""
    with connect(server) as connection:
        connection.sendall(publish(key, 7))
        connection.shutdown(socket.SHUT_WR)
        said = everything(connection)
    assert said == b"" or said.startswith(b"HTTP/1.1 202")
    answers_others(server, key)
    assert BizMsg.objects.filter(payload=b"7").count() <= 1


def fetched(server: Server, path: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=SOON)
    connection.request("GET", path, headers={"Accept-Encoding": "gzip, br"})
    return connection.getresponse()


def test_pages_are_compressed_and_answers_to_programs_are_not(server: Server) -> None:
    page = fetched(server, "/admin/login/")
    assert page.headers["Content-Encoding"] == "gzip"
    assert "Accept-Encoding" in page.headers["Vary"]
    body = page.read()
    whole = gzip.decompress(body)
    assert b'name="password"' in whole
    assert len(body) < len(whole) / 2
    assert fetched(server, "/api/schema/?format=json").headers["Content-Encoding"] is None
    assert b'name="password"' in server.request("GET", "/admin/login/")[1]


def test_a_request_id_is_given_back(server: Server) -> None:
    with connect(server) as connection:
        close = "Connection: close"
        connection.sendall(head("GET", "/healthz", None, "X-Request-ID: abc-1", close))
        assert b"x-request-id: abc-1\r\n" in everything(connection)
    with connect(server) as connection:
        connection.sendall(head("GET", "/healthz", None, "X-Request-ID: a b", close))
        said = everything(connection)
    assert b"x-request-id: " in said
    assert b"a b" not in said


def test_a_header_that_looks_like_another(server: Server, tmp_path: Path) -> None:
    """`X_Forwarded_Proto` would become the same variable as `X-Forwarded-Proto`."""
    forged = ("X_Forwarded_Host: evil.example", "Content_Length: 5", "Connection: close")
    with connect(server) as connection:
        connection.sendall(head("GET", "/healthz", None, *forged))
        assert everything(connection).startswith(b"HTTP/1.1 200")


def test_a_large_file(server: Server) -> None:
    """A file of the packages' own, which anybody may ask for."""
    status, page = server.request(
        "GET", "/static/drf_spectacular_sidecar/swagger-ui-dist/swagger-ui-bundle.js"
    )
    assert status == 200
    assert len(page) > 1024 * 1024


def test_who_does_not_read_an_answer_is_left(tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = Server(log, "tests.support.hasty_web:application", head_seconds=5)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(head("GET", "/long", None))
        deadline = time.monotonic() + SOON
        while b"answer_not_read" not in log.read_bytes():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        connection.settimeout(SOON)
        answer_head, _, body = everything(connection).partition(b"\r\n\r\n")
        assert b"HTTP/1.1 200" in answer_head
        size = re.search(rb"content-length: (\d+)", answer_head)
        assert size
        assert 0 < len(body) < int(size[1])
    server.stop()
    assert b"Traceback" not in log.read_bytes()


def test_systemd_is_told_when_it_answers(tmp_path: Path, work_redis: object) -> None:
    """The unit is of the type `notify`: `systemctl restart` returns then."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        name = f"mp-notify-{os.getpid()}"  # an abstract one, of which no path is too long
        systemd.bind(f"\0{name}")
        systemd.settimeout(SOON)
        server = Server(tmp_path / "log", environment={"NOTIFY_SOCKET": f"@{name}"})
        try:
            assert systemd.recv(100) == b"READY=1"
            assert server.request("GET", "/healthz")[0] == 200
        finally:
            server.stop()
