"""Answers that are whole before they are sent, as ASGI sends them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from django.http import HttpResponse

from msgplatform.doors.api.problems.problem import Problem
from msgplatform.doors.web import bodies

Send = Callable[[dict[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

CLOSE = (b"connection", b"close")
# Bytes of an answer's body that the server gets at once. A longer body is sent in pieces of this
# size, because the server keeps all that the client has not read.
PIECE = 64 * 1024


class Answer(NamedTuple):
    """A status, headers in lower case, and the whole body."""

    status: int
    headers: Headers
    body: bytes

    async def send(self, send: Send, *more: tuple[bytes, bytes]) -> None:
        """Raises TimeoutError if the client reads more slowly than it would have to send a body."""
        start = {"type": "http.response.start", "status": self.status}
        await send({**start, "headers": [*self.headers, *more]})
        last = self.body
        if len(last) > PIECE:
            begin, view, last = asyncio.get_running_loop().time(), memoryview(last), b""
            for sent in range(0, len(view), PIECE):
                piece = bytes(view[sent : sent + PIECE])
                async with asyncio.timeout_at(begin + bodies.SECONDS + sent / bodies.MIN_PACE):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": last})


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
