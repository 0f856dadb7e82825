"""The API behind its real server: bodies of unknown length, concurrent callers, revoked keys."""

import http.client
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from msgplatform.models import ApiKey
from tests.support import api_server, api_support
from tests.support.api_server import JSON, Server
from tests.support.api_support import Api

api, server = pytest.fixture(api_support.api), api_server.server
pytestmark = pytest.mark.django_db(transaction=True)
ECHO, BATCH = "/api/v1/test/echo", "/api/v1/test/batch"


def pieces(body: bytes, size: int = 100) -> Iterator[bytes]:
    """http.client sends what has no length in chunks."""
    return (body[start : start + size] for start in range(0, len(body), size))


@pytest.mark.parametrize("path", [ECHO, BATCH])
class TestBodies:
    body = b'{"items": [{"name": "a", "payload": "' + b"x" * 1000 + b'"}]}'

    def test_chunked(self, api: Api, server: Server, path: str) -> None:
        status, answer = server.request("POST", path, api.key()[1], pieces(self.body), JSON)
        assert status == 200
        assert b"x" * 1000 in answer

    @pytest.mark.parametrize("chunks", [b"zz\r\nabc\r\n0\r\n\r\n", b"5\r\nabcdefgh\r\n", b"-1\r\n"])
    def test_malformed_chunks(self, api: Api, server: Server, path: str, chunks: bytes) -> None:
        key = api.key()[1]
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
            "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", server.port), timeout=120) as caller:
            caller.sendall(head.encode() + chunks)
            answer = http.client.HTTPResponse(caller)
            answer.begin()
            assert (answer.status, b"chunks" in answer.read()) == (400, True)
        assert server.request("POST", path, key, self.body, JSON)[0] == 200

    def test_chunked_and_too_large(self, api: Api, server: Server, path: str) -> None:
        body = self.body + b" " * 2000
        status, answer = server.request("POST", path, api.key()[1], pieces(body, len(body)), JSON)
        assert (status, b"body-too-large" in answer) == (413, True)

    def test_a_header_that_promises_more(self, api: Api, server: Server, path: str) -> None:
        """The caller leaves in the middle of the body: the server lives on."""
        key = api.key()[1]
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
            "Content-Type: application/json\r\nContent-Length: 1500\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", server.port), timeout=120) as caller:
            caller.sendall(head.encode() + self.body)
        assert server.request("POST", path, key, self.body, JSON)[0] == 200

    def test_no_body_at_all(self, api: Api, server: Server, path: str) -> None:
        status, _ = server.request("POST", path, api.key()[1], None, JSON)
        assert status in {200, 400}


def test_many_callers_at_once(api: Api, server: Server) -> None:
    """Every one is told apart, and is told who it is."""
    made = [api.key() for _ in range(8)]
    wrong: list[object] = []

    def call(key: ApiKey, plain: str) -> None:
        for _ in range(25):
            status, answer = server.request("GET", ECHO, plain)
            if (status, f'"key":"{key.pk}"'.encode() in answer) != (200, True):
                wrong.append((status, answer))

    threads = [threading.Thread(target=call, args=pair) for pair in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    # Written after the answer, so perhaps not yet.
    deadline = time.monotonic() + 60
    while ApiKey.objects.filter(last_used_at=None).exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_an_unknown_address(api: Api, server: Server) -> None:
    status, answer = server.request("POST", "/api/nothing", None, b"{}", JSON)
    assert (status, b"/problems/not-found" in answer) == (404, True)


@pytest.mark.parametrize(
    "charset",
    ["charset=hex", "charset=rot13", "charset=undefined", "charset=punycode", "charset=nobody",
     "charset*=utf-8''hex", "charset*=hex''x", "charset*=nobody''x", 'charset="hex',
     "charset*=utf-8''x; charset*0=y", 'boundary="a\\"; charset=hex; x=\\""; charset=nobody',
     "boundary*=utf-8''a%22%3B%20charset%3Dhex; charset=nobody"],
)  # fmt: skip
def test_a_charset_that_is_none(server: Server, charset: str) -> None:
    """Django would decode query and form with it, before anything catches the error."""
    headers = {"Content-Type": f"a/b; {charset}"}
    status, answer = server.request("GET", "/api/v1/messages?limit=1", None, None, headers)
    assert (status, b"/problems/unauthenticated" in answer) == (401, True)
    if "boundary" in charset:
        return
    form = b'--x\r\nContent-Disposition: form-data; name="username"\r\n\r\nme\r\n--x--\r\n'
    headers = {"Content-Type": f"multipart/form-data; boundary=x; {charset}"}
    status, _answer = server.request("POST", "/admin/login/", None, form, headers)
    assert status == 403  # it has no CSRF token
    assert b"Traceback" not in server.log.read_bytes()


def test_ready(api: Api, server: Server) -> None:
    deadline = time.monotonic() + 60
    # It waits two seconds for the database and half a second for Redis, which on a busy machine is
    # not always enough.
    ready = b'{"ready": true, "database": "ok", "redis": "ok"}'
    while (answer := server.request("GET", "/readyz")) != (200, ready):
        assert time.monotonic() < deadline, answer
