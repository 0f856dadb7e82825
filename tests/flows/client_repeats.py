"""Answers that are lost, cut off, or those of a proxy, and payloads that cannot be sent: what is
repeated, and what is an error.

It runs where only the client is installed, against a server of its own.
"""

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import TypeVar

from msgplatform_client import (
    AsyncClient,
    Client,
    Event,
    NotFound,
    NotThePlatform,
    Refused,
    Unavailable,
    UnexpectedAnswer,
    Unreachable,
)
from msgplatform_client.generated.models import Accepted

E = TypeVar("E", bound=Exception)


class Server(ThreadingTCPServer):
    """Gives its answers one after another, each on a connection of its own."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[bytes] = []
        self.bodies: list[bytes] = []

    def prepare(self, *answers: bytes) -> None:
        self.answers, self.bodies = list(answers), []


class Handler(StreamRequestHandler):
    server: Server

    def handle(self) -> None:
        length = 0
        while line := self.rfile.readline().strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        self.server.bodies.append(self.rfile.read(length))
        self.wfile.write(self.server.answers.pop(0))


def answer(status: str, body: bytes = b"") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    return f"{head}\r\nconnection: close\r\n\r\n".encode() + body


def error_of(kind: type[E], call: Callable[[], object]) -> E:
    """The error of this kind that the call raises."""
    try:
        result = call()
    except kind as error:
        return error
    raise AssertionError(f"it was accepted: {result}")


GOOD = answer("202 Accepted", b'{"id": "1", "outcome": "created"}')
CUT, LOST = GOOD[:-5], b""
OF_A_NEWER_PLATFORM = GOOD.replace(b"created", b"renewed")
OF_A_PROXY = answer("520 ")
DID_NOTHING = answer("503 Service Unavailable", b'{"type": "/problems/unavailable"}')
NOTHING_THERE = answer("404 Not Found", b'{"type": "/problems/not-found", "title": "Not found"}')
PAGE = answer("200 OK", b"<html>Sign in</html>").replace(
    b"application/json", b"text/html; charset=x"
)
ONE_VERDICT = answer("200 OK", b'{"results": [{"outcome": "created", "id": "1"}]}')
ANSWERED_ONCE: tuple[tuple[str, dict[str, str]], ...] = (
    ("/api/v1/consumers/a", {"If-None-Match": "*"}),
    ("/api/v1/consumers/a", {"If-Match": '"1"'}),
    ("/api/v1/platform?prune=true", {}),
)
NO_JSON: tuple[tuple[type[Exception], object], ...] = (
    (TypeError, datetime.now(UTC)),
    (TypeError, Decimal("99.00")),
    (ValueError, float("nan")),
)

with Server() as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"

    with Client(url, "mp_test", patience=0) as impatient:
        publish = partial(impatient.publish, "a.b", 1)
        server.prepare(OF_A_PROXY)
        error = error_of(Unavailable, publish)
        assert (error.status, error.title, error.is_permanent) == (520, "HTTP 520", False)
        for other in (b'["away"]', b"null", b'{"a": ["b"]}', b'[{"field": "a"}, 1]'):
            server.prepare(answer("503 Away", b'{"errors": %b}' % other))
            assert not error_of(Unavailable, publish).is_permanent
        server.prepare(answer("499 "))
        assert error_of(Refused, publish).title == "HTTP 499"
        server.prepare(CUT)
        assert not error_of(Unreachable, publish).is_permanent

    with Client(url, "mp_test") as client:
        server.prepare(OF_A_PROXY, CUT, GOOD)
        assert client.publish("a.b", 1).outcome == "created"
        assert len(server.bodies) == 3
        assert len(set(server.bodies)) == 1, "the repeats have another key"

        server.prepare(OF_A_NEWER_PLATFORM)
        assert client.publish("a.b", 1).outcome.value in {"renewed"}

        http = client.api.get_httpx_client()
        for path, headers in ANSWERED_ONCE:
            for bad_answer in (LOST, CUT):
                server.prepare(bad_answer, GOOD)
                error_of(Unreachable, partial(http.put, path, json={}, headers=headers))
                assert len(server.bodies) == 1, path
        for first, path in (
            (DID_NOTHING, "/api/v1/platform"),
            (LOST, "/api/v1/platform?dry_run=true"),
            (LOST, "/api/v1/consumers/a"),
        ):
            server.prepare(first, GOOD)
            http.put(path, json={})
            assert len(server.bodies) == 2, path

        # Nothing is there any more: the first one has deleted it.
        for lost in (LOST, CUT, OF_A_PROXY):
            server.prepare(lost, NOTHING_THERE)
            assert http.delete("/api/v1/consumers/a").status_code == 204
        server.prepare(DID_NOTHING, NOTHING_THERE)
        error_of(NotFound, partial(http.delete, "/api/v1/consumers/a"))
        server.prepare(NOTHING_THERE)
        error_of(NotFound, partial(http.delete, "/api/v1/consumers/a"))

        server.prepare(PAGE)
        assert not error_of(NotThePlatform, partial(client.publish, "a.b", 1)).is_permanent
        server.prepare(ONE_VERDICT)
        error_of(UnexpectedAnswer, partial(client.publish_many, [Event("a.b", 1), Event("a.b", 2)]))

        server.prepare()
        for kind, payload in NO_JSON:
            error_of(kind, partial(client.publish, "a.b", payload))
            events = [Event("a.b", 1), Event("a.b", payload)]
            error_of(kind, partial(client.publish_many, events))
        assert not server.bodies, "something was sent"

    async def publish_once(payload: object = 1) -> Accepted:
        async with AsyncClient(url, "mp_test") as client:
            return await client.publish("a.b", payload)

    for kind, payload in NO_JSON:
        error_of(kind, partial(asyncio.run, publish_once(payload)))
    assert not server.bodies, "something was sent"

    # From a file, from a page, from an editor of Windows; and keys that are none.
    for kind_of_client in (Client, AsyncClient):
        for key in (" mp_test\r\n", "\ufeffmp_test", "mp_test\u200b"):
            assert kind_of_client(url, key).api.token == "mp_test"
        for broken in ("", "mp_s3cret\nx", "mp_s3cret x", "mp_s3cr\u00e9t", "mp_s3cret\x00"):
            assert "s3cr" not in str(error_of(ValueError, partial(kind_of_client, url, broken)))

    server.prepare(CUT, GOOD)
    assert asyncio.run(publish_once()).outcome == "created"
    assert len(server.bodies) == 2
    server.shutdown()
print("repeated as documented")
