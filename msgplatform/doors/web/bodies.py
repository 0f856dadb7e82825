"""Reads the bodies of requests in the event loop, and sends answers that are whole, bounded in size
and in time.

Only a request that has arrived whole gets a thread, so that a slow client costs nothing but memory.
`Allowance` bounds that memory, and that of long answers which are not read yet, for all clients and
for each address.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple, Self

from django.http import HttpResponse

from msgplatform.core.errors import Temporary
from msgplatform.doors.api.problems.problem import BodyTooLarge, BodyTooSlow, Problem

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

# Seconds for a body; longer if it comes at this pace (bytes a second) or faster.
SECONDS = 10.0
MIN_PACE = 16 * 1024
# Bytes of an answer's body that the server gets at once. A longer body is sent in pieces of this
# size, because the server keeps all that the client has not read.
PIECE = 64 * 1024
CLOSE = (b"connection", b"close")
# Seconds for which bytes beyond the limit are read and dropped: a client that is still sending when
# the connection closes does not read the answer.
_DRAIN_SECONDS = 2.0
_FULL = "too many requests are in flight; send it again later"
_ONE_ADDRESS = "too many requests of this address are in flight; send it again later"


class Disconnected(Exception):
    """The client disconnected before its body ended: no caller waits for an answer."""


class Full(Temporary):
    """The allowance is used up."""


async def read(receive: Receive, limit: int, length: int | None, share: Share) -> bytes:
    """The whole body; `length` is its Content-Length, None without one.

    Raises BodyTooLarge, BodyTooSlow, Disconnected, Full.
    """
    if length is not None and length > limit:  # refused before any of it is kept in memory
        await _drain(receive)
        raise BodyTooLarge(limit)
    loop = asyncio.get_running_loop()
    start, has_more = loop.time(), True
    whole: bytes | bytearray = b""
    with _Patience(loop, start + SECONDS) as patience:
        while has_more:
            message = await receive()
            if message["type"] != "http.request":
                raise Disconnected
            part: bytes = message.get("body", b"")
            has_more = message.get("more_body", False)
            share.add(len(part))
            if not whole:
                whole = part
            elif part:
                # No list of parts: parts of two bytes each would take twenty times the memory.
                whole = bytearray(whole) if isinstance(whole, bytes) else whole
                whole += part
            if len(whole) > limit or len(whole) == length:
                break
            if has_more:
                patience.extend(start + SECONDS + len(whole) / MIN_PACE)
    if len(whole) > limit:
        del whole
        if has_more:
            await _drain(receive)
        raise BodyTooLarge(limit)
    return bytes(whole)


class _Patience:
    """Raises BodyTooSlow in the block after its deadline. Works like `asyncio.timeout` at a third
    of the cost, which every publish pays."""

    __slots__ = ("_is_over", "_loop", "_task", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, deadline: float) -> None:
        self._loop, self._task = loop, asyncio.current_task(loop)
        self._is_over = False
        self._timer = loop.call_at(deadline, self._end)

    def __enter__(self) -> Self:
        return self

    def extend(self, deadline: float) -> None:
        self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._end)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._timer.cancel()
        if self._is_over and kind is asyncio.CancelledError:
            raise BodyTooSlow

    def _end(self) -> None:
        self._is_over = True
        if self._task:
            self._task.cancel()


async def _drain(receive: Receive) -> None:
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            while (await receive()).get("more_body"):
                pass
    except TimeoutError:
        pass


class Allowance:
    """The requests, and the bytes of their bodies and of long answers, that may be in flight in
    this process.

    One address may take `share` of either. Used only in the event loop.
    """

    def __init__(self, requests: int, size: int, share: float) -> None:
        self.max_requests, self.max_bytes, self.share = requests, size, share
        self.requests: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.all_requests = self.all_bytes = 0

    def take(self, address: str) -> Share:
        """Count one request until its `give_back`. Raises Full."""
        if self.all_requests >= self.max_requests:
            raise Full(_FULL)
        if self.requests[address] >= self.max_requests * self.share:
            raise Full(_ONE_ADDRESS)
        self.requests[address] += 1
        self.all_requests += 1
        return Share(self, address)


class Share:
    """One request's part of the allowance."""

    __slots__ = ("_address", "_allowance", "_size")

    def __init__(self, allowance: Allowance, address: str) -> None:
        self._allowance, self._address, self._size = allowance, address, 0

    def add(self, size: int, can_refuse: bool = True) -> None:
        """Count another part of the body, or the answer. Raises Full if `can_refuse`; otherwise the
        bytes may exceed the bounds."""
        total, address = self._allowance, self._address
        if can_refuse and total.all_bytes + size > total.max_bytes:
            raise Full(_FULL)
        if can_refuse and total.bytes[address] + size > total.max_bytes * total.share:
            raise Full(_ONE_ADDRESS)
        total.bytes[address] += size
        total.all_bytes += size
        self._size += size

    def give_back(self) -> None:
        """The request has ended."""
        total, address = self._allowance, self._address
        total.all_requests -= 1
        total.all_bytes -= self._size
        total.bytes[address] -= self._size
        total.requests[address] -= 1
        if not total.requests[address]:  # otherwise counters would stay for every address
            del total.requests[address], total.bytes[address]


# -- answers ---------------------------------------------------------------------------------------
class Answer(NamedTuple):
    """A status, headers in lower case, and the whole body."""

    status: int
    headers: Headers
    body: bytes

    async def send(self, send: Send, *extra_headers: tuple[bytes, bytes]) -> None:
        """Raises TimeoutError if the client reads more slowly than it would have to send a body."""
        start = {"type": "http.response.start", "status": self.status}
        await send({**start, "headers": [*self.headers, *extra_headers]})
        if len(self.body) <= PIECE:
            await send({"type": "http.response.body", "body": self.body})
            return
        start_time, view = asyncio.get_running_loop().time(), memoryview(self.body)
        for offset in range(0, len(view), PIECE):
            piece = bytes(view[offset : offset + PIECE])
            async with asyncio.timeout_at(start_time + SECONDS + offset / MIN_PACE):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def of_response(response: HttpResponse) -> Answer:
    """The answer for a response of Django that is not streamed."""
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in response.items()]
    if not response.has_header("Content-Length"):
        headers.append((b"content-length", b"%d" % len(response.content)))
    return Answer(response.status_code, headers, response.content)


def refusal(problem: Problem, is_api: bool) -> Answer:
    """The answer to a request that was not read to its end; afterwards the connection closes."""
    if is_api:
        answer = of_response(problem.response())
        answer.headers.append(CLOSE)
        return answer
    text = f"{problem.kind.title}. {problem.detail}\n".encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"%d" % len(text)),
        *((name.lower().encode(), value.encode()) for name, value in problem.headers.items()),
        CLOSE,
    ]
    return Answer(problem.kind.status, headers, text)
