"""Django's threads behind the event loop."""

import asyncio
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from msgplatform.doors.web import django_app
from msgplatform.doors.web.bodies import Full
from msgplatform.doors.web.django_app import DjangoApp

SCOPE: dict[str, Any] = {
    "method": "GET", "path": "/", "query_string": b"", "http_version": "1.1", "scheme": "http",
    "headers": [],
}  # fmt: skip


async def send(_message: dict[str, Any]) -> None:
    raise AssertionError("a short answer is not streamed")


def test_a_request_without_a_thread_in_time_is_refused_and_never_carried_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(django_app, "_QUEUE_SECONDS", 0.2)
    paths: list[str] = []
    entered, gate = threading.Event(), threading.Event()
    give_up = django_app._Call.give_up

    def give_up_the_second(call: Any, work: Future[None]) -> None:
        """The time of the first is over when it has begun: a thread of a busy machine is late. For
        the third there is a thread."""
        if not entered.is_set():
            asyncio.get_running_loop().call_later(0.01, call.give_up, work)
        elif not gate.is_set():
            give_up(call, work)

    monkeypatch.setattr(django_app._Call, "give_up", give_up_the_second)

    def application(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        paths.append(environ["PATH_INFO"])
        entered.set()
        assert gate.wait(180)
        start("200 OK", [])
        return [b"done"]

    async def run() -> None:
        app = DjangoApp(application, threads=1)
        first = asyncio.create_task(app.answer({**SCOPE, "path": "/first"}, b"", "1", send))
        assert await asyncio.to_thread(entered.wait, 180)
        with pytest.raises(Full, match="nothing was done"):
            await app.answer({**SCOPE, "path": "/second"}, b"", "2", send)
        # One that has begun is not given up, however long it takes.
        assert not first.done()
        gate.set()
        answer = await first
        assert not isinstance(answer, int)
        assert (answer.status, answer.body) == (200, b"done")
        await app.answer({**SCOPE, "path": "/third"}, b"", "3", send)

    asyncio.run(run())
    assert paths == ["/first", "/third"]


def test_an_answer_that_takes_minutes_is_sent_while_it_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the time for which its client does not read counts against the client."""
    clock, has_read = SimpleNamespace(seconds=0.0), threading.Event()
    monkeypatch.setattr(django_app, "time", SimpleNamespace(monotonic=lambda: clock.seconds))
    messages: list[dict[str, Any]] = []

    def application(_environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        start("200 OK", [])
        for part in (b"1", b"2"):
            clock.seconds += 60
            yield part
        assert has_read.wait(180)
        yield b"3"

    async def read(message: dict[str, Any]) -> None:
        messages.append(message)
        if message.get("body") == b"2":
            has_read.set()

    async def run() -> None:
        app = DjangoApp(application, threads=1)
        assert await app.answer({**SCOPE, "path": "/"}, b"", "1", read) == 200

    asyncio.run(run())
    assert b"".join(message.get("body", b"") for message in messages) == b"123"
    assert (b"x-accel-buffering", b"no") in messages[0]["headers"]
