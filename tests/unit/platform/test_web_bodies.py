"""Bounds on what is under way, without a server."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from msgplatform.doors.api.problems.problem import BodyTooLarge, BodyTooSlow
from msgplatform.doors.web import bodies
from msgplatform.doors.web.bodies import Allowance, Disconnected, Full

Message = dict[str, Any]


def parts(*given: bytes) -> Callable[[], Awaitable[Message]]:
    """A client that sends these, and then leaves."""
    waiting = list(given)

    async def receive() -> Message:
        if not waiting:
            return {"type": "http.disconnect"}
        part = waiting.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(waiting)}

    return receive


def read(
    receive: Callable[[], Awaitable[Message]],
    limit: int = 100,
    length: int | None = None,
    allowance: Allowance | None = None,
) -> bytes:
    share = (allowance or Allowance(10, 10_000, 1.0)).take("10.0.0.1")
    return asyncio.run(bodies.read(receive, limit, length, share))


@pytest.mark.parametrize("given", [(b"",), (b"abc",), (b"a", b"", b"bc"), (b"x" * 100,)])
def test_a_whole_body(given: tuple[bytes, ...]) -> None:
    assert read(parts(*given)) == b"".join(given)


def test_it_ends_where_it_was_announced_to_end() -> None:
    """Without waiting for the message that says so."""
    assert read(parts(b"ab", b"c", b""), length=3) == b"abc"


@pytest.mark.parametrize("given", [(b"x" * 101,), (b"x" * 60, b"x" * 60, b"x"), (b"x" * 101, b"")])
def test_one_byte_too_many(given: tuple[bytes, ...]) -> None:
    with pytest.raises(BodyTooLarge):
        read(parts(*given))


def test_too_much_announced() -> None:
    with pytest.raises(BodyTooLarge):
        read(parts(b"x"), length=101)


def test_a_client_that_leaves() -> None:
    async def leave() -> Message:
        return {"type": "http.disconnect"}

    with pytest.raises(Disconnected):
        read(leave)


def test_a_client_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "SECONDS", 0.01)

    async def wait() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(BodyTooSlow):
        read(wait)


@pytest.mark.parametrize(("pace", "enough"), [(0.001, True), (1e9, False)])
def test_a_body_that_keeps_coming_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, pace: float, enough: bool
) -> None:
    """A byte buys as many seconds as it takes at the least pace."""
    monkeypatch.setattr(bodies, "SECONDS", 0.05)
    monkeypatch.setattr(bodies, "MIN_PACE", pace)
    sent: list[bytes] = []

    async def trickle() -> Message:
        if sent:
            await asyncio.sleep(0.5)
        sent.append(b"a")
        return {"type": "http.request", "body": b"a", "more_body": len(sent) < 2}

    if enough:
        assert read(trickle) == b"aa"
    else:
        with pytest.raises(BodyTooSlow):
            read(trickle)


def test_bytes_of_everybody_are_bounded() -> None:
    allowance = Allowance(10, 150, 1.0)
    assert read(parts(b"x" * 100), allowance=allowance) == b"x" * 100
    with pytest.raises(Full):
        read(parts(b"x" * 60), allowance=allowance)


def test_one_address_has_a_share() -> None:
    allowance = Allowance(4, 1000, 0.5)
    taken = [allowance.take("10.0.0.1") for _ in range(2)]
    with pytest.raises(Full, match="this address"):
        allowance.take("10.0.0.1")
    other = allowance.take("10.0.0.2")
    other.add(500)
    with pytest.raises(Full, match="this address"):
        other.add(1)
    allowance.take("10.0.0.3")
    with pytest.raises(Full, match="send it again later"):
        allowance.take("10.0.0.4")
    taken[0].give_back()
    allowance.take("10.0.0.4")


def test_what_is_not_refused_is_counted() -> None:
    allowance = Allowance(2, 100, 1.0)
    written, read = allowance.take("10.0.0.1"), allowance.take("10.0.0.2")
    written.add(101, can_refuse=False)
    with pytest.raises(Full):
        read.add(1)
    written.give_back()
    read.add(100)


def test_all_is_given_back() -> None:
    allowance = Allowance(2, 100, 1.0)
    for _ in range(10):
        share = allowance.take("10.0.0.1")
        share.add(100)
        share.give_back()
    with pytest.raises(Full):
        allowance.take("10.0.0.1").add(101)
