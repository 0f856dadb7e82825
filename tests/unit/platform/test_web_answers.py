"""Long answers are kept until their clients have read them, and no more than the allowance."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from msgplatform.doors.web import application as application_module
from msgplatform.doors.web.application import Application
from msgplatform.doors.web.bodies import PIECE, Answer
from msgplatform.doors.web.django_app import DjangoApp
from msgplatform.doors.web.fast_intake import FastIntake

SIZE = 10 * PIECE + 1
SCOPE: dict[str, Any] = {
    "type": "http", "method": "GET", "path": "/long", "query_string": b"", "http_version": "1.1",
    "scheme": "http", "headers": [], "client": ("192.0.2.1", 1),
}  # fmt: skip


def _long(_environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    start("200 OK", [])
    return [b"x" * SIZE]


async def _receive() -> dict[str, Any]:
    return {"type": "http.disconnect"}


class Client:
    """Reads the first `pieces` of its answer, and the others after `read_on`."""

    def __init__(self, pieces: int) -> None:
        self.status, self.bodies, self._pieces = 0, list[bytes](), pieces
        self.waits, self.read_on = asyncio.Event(), asyncio.Event()

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        self.bodies.append(message["body"])
        if len(self.bodies) > self._pieces:
            self.waits.set()
            await self.read_on.wait()


def test_an_answer_that_is_not_read_counts_in_the_allowance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(application_module, "_MAX_BODY_BYTES", SIZE * 3)

    async def run() -> None:
        app = Application(FastIntake([]), DjangoApp(_long, threads=1))
        slow, refused, other, later = Client(2), Client(99), Client(99), Client(99)
        reading = asyncio.create_task(app(SCOPE, _receive, slow.send))
        await slow.waits.wait()
        # One address may have half of it.
        await app(SCOPE, _receive, refused.send)
        await app({**SCOPE, "client": ("192.0.2.2", 1)}, _receive, other.send)
        assert (refused.status, other.status) == (503, 200)
        slow.read_on.set()
        await reading
        await app(SCOPE, _receive, later.send)
        assert b"".join(slow.bodies) == b"".join(later.bodies) == b"x" * SIZE
        assert max(map(len, slow.bodies)) == PIECE

    asyncio.run(run())


def test_an_answer_to_a_write_is_never_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application_module, "_MAX_BODY_BYTES", SIZE)

    async def run() -> None:
        app = Application(FastIntake([]), DjangoApp(_long, threads=1))
        read, written = Client(99), Client(99)
        await app(SCOPE, _receive, read.send)
        await app({**SCOPE, "method": "POST"}, _receive, written.send)
        assert (read.status, written.status) == (503, 200)
        assert b"".join(written.bodies) == b"x" * SIZE

    asyncio.run(run())


def test_health_is_answered_when_too_much_is_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is restarted for it would forget the keys that it knows."""
    monkeypatch.setattr(application_module, "_MAX_REQUESTS", 0)

    async def run() -> None:
        app = Application(FastIntake([]), DjangoApp(_long, threads=1))
        refused, health = Client(99), Client(99)
        await app(SCOPE, _receive, refused.send)
        scope = {**SCOPE, "path": "/healthz", "headers": [(b"host", b"testserver")]}
        await app(scope, _receive, health.send)
        assert (refused.status, health.status) == (503, 200)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("proxies", "callers"),
    [
        (1, [{"headers": [(b"x-forwarded-for", address)]} for address in (
            b"198.51.100.7", b"198.51.100.7", b"198.51.100.7, 203.0.113.9")]),
        (2, [{"headers": [(b"x-forwarded-for", hop) for hop in (address, b"203.0.113.9")]}
             for address in (b"198.51.100.7", b"198.51.100.7", b"198.51.100.8")]),
        (0, [{"client": (address, 1)} for address in (
            "2001:db8::1", "2001:db8::2", "2001:db8:0:1::1")]),
    ],
)  # fmt: skip
def test_each_caller_has_its_part_behind_a_proxy_too(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, proxies: int, callers: list[Any]
) -> None:
    settings.REST_FRAMEWORK = {**settings.REST_FRAMEWORK, "NUM_PROXIES": proxies}
    monkeypatch.setattr(application_module, "_MAX_BODY_BYTES", SIZE * 3)

    async def run() -> None:
        app = Application(FastIntake([]), DjangoApp(_long, threads=1))
        slow, refused, other = Client(2), Client(99), Client(99)
        one, same, two = ({**SCOPE, **caller} for caller in callers)
        reading = asyncio.create_task(app(one, _receive, slow.send))
        await slow.waits.wait()
        await app(same, _receive, refused.send)
        await app(two, _receive, other.send)
        assert (refused.status, other.status) == (503, 200)
        slow.read_on.set()
        await reading

    asyncio.run(run())


def test_a_short_answer_is_one_piece() -> None:
    async def run() -> None:
        client = Client(99)
        await Answer(200, [], b"x" * PIECE).send(client.send)
        assert client.bodies == [b"x" * PIECE]

    asyncio.run(run())
