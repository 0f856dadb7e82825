"""Django for ASGI requests whose bodies are known: its WSGI application in threads.

Django's own ASGI handler costs several times its WSGI one, and puts every view into one thread.
"""

import asyncio
import io
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from http import HTTPStatus
from itertools import chain
from typing import Any, cast
from urllib.parse import unquote_to_bytes

import structlog
from django.utils.http import parse_header_parameters

from msgplatform.core import logging
from msgplatform.core.connections import briefly
from msgplatform.core.sandbox import DELAY_HEADER, MAX_DELAY_SECONDS
from msgplatform.core.tracing import context
from msgplatform.core.web.long_polls import HAS_WAITED
from msgplatform.doors.web.bodies import MIN_PACE, PIECE, SECONDS, Answer, Full, Headers, Send

log = logging.get(__name__)

# Maximum bytes of an answer that leaves its thread in one piece: a client that reads slowly must
# not keep the thread. Hardly any list of the API is longer.
_ONE_PIECE = 4 * 1024 * 1024
# Seconds after which the finished part of an answer is sent: clients and proxies end an answer that
# is silent for 30 to 60 seconds.
_PIECE_SECONDS = 5.0
_HEALTH_THREADS = 2
# Seconds that a request may wait for a thread. While a database hangs all threads do, for a minute.
_QUEUE_SECONDS = 10.0
_DELAY = DELAY_HEADER.lower().encode()
_BOUNDARY = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{1,70}")  # RFC 2046, 5.1.1
# Text codecs in which browsers send forms. Python also has other codecs, such as hex.
_CHARSETS = {
    "utf-8", "utf8", "us-ascii", "iso-8859-1", "windows-1252", "gbk", "gb2312", "gb18030", "big5",
}  # fmt: skip

Environ = dict[str, Any]
WsgiApp = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]


class DjangoApp:
    """Answers by `application`. Requests for `health` have threads of their own, so that they are
    answered while all others wait for a database."""

    def __init__(self, application: WsgiApp, threads: int, health: Iterable[str] = ()) -> None:
        self._application = application
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="django")
        self._health_pool = ThreadPoolExecutor(_HEALTH_THREADS, thread_name_prefix="health")
        self._health = frozenset(health)

    async def answer(
        self,
        scope: dict[str, Any],
        body: bytes,
        request_id: str,
        send: Send,
        has_waited: bool = False,
    ) -> Answer | int:
        """Django's answer; only the status if the answer was streamed and so is sent already.
        `has_waited`: the request is a long poll, and was asked before."""
        pool = self._health_pool if scope["path"] in self._health else self._pool
        call = _Call(asyncio.get_running_loop(), send, request_id)
        environ = {**_environ(scope, body), HAS_WAITED: has_waited}
        work = pool.submit(call.run, self._application, environ)
        timer = asyncio.get_running_loop().call_later(_QUEUE_SECONDS, call.give_up, work)
        try:
            answer = await call.future
        finally:
            timer.cancel()
        headers = () if isinstance(answer, int) else answer.headers
        delay = next((header for header in headers if header[0] == _DELAY), None)
        if delay is None or isinstance(answer, int):
            return answer
        # A sandbox may delay its answers: no thread waits for that.
        await asyncio.sleep(min(float(delay[1]), MAX_DELAY_SECONDS))
        return answer._replace(headers=[pair for pair in headers if pair is not delay])


class _Call:
    """One call of the application: made in the event loop, run in a thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, send: Send, request_id: str) -> None:
        self._loop, self._send, self._request_id = loop, send, request_id
        self.future: asyncio.Future[Answer | int] = loop.create_future()
        self._status, self._headers = 500, cast(Headers, [])
        # A client must read a streamed answer as fast as it would have to send a body. The time in
        # which the answer is made does not count.
        self._send_seconds, self._bytes_sent = 0.0, 0

    def run(self, application: WsgiApp, environ: Environ) -> None:
        log_context = structlog.contextvars.bound_contextvars(request_id=self._request_id)
        with log_context, context.of_request(environ.get("HTTP_TRACEPARENT", "")), briefly():
            try:
                response = application(environ, self._start_response)
                try:
                    self._respond(response)
                finally:
                    # After the answer, because handlers of `request_finished` may take long.
                    if close := getattr(response, "close", None):
                        close()
            except BaseException as error:
                log.exception("request_failed", path=environ["PATH_INFO"])
                self._settle(self.future.set_exception, error)

    def give_up(self, work: Future[None]) -> None:
        """Refuse a request for which no thread was free in time. Nothing was done for the request:
        its caller may be gone, or has sent it again."""
        if work.cancel() and not self.future.done():
            self.future.set_exception(
                Full("The server is busy; nothing was done. Repeat it later.")
            )

    def _start_response(self, status: str, headers: list[tuple[str, str]], *_: object) -> None:
        self._status = int(status[:3])
        self._headers = [
            (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers
        ]

    def _respond(self, response: Iterable[bytes]) -> None:
        pieces = _pieces(response)
        first, second = next(pieces, b""), next(pieces, None)
        if second is None:
            has_body = self._status not in {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED}
            if has_body and not any(name == b"content-length" for name, _ in self._headers):
                self._headers.append((b"content-length", b"%d" % len(first)))
            self._settle(self.future.set_result, Answer(self._status, self._headers, first))
            return
        headers = [*self._headers, (b"x-request-id", self._request_id.encode())]
        if len(first) <= _ONE_PIECE:  # it takes long to make: nginx must not collect it either
            headers.append((b"x-accel-buffering", b"no"))
        self._send_now({"type": "http.response.start", "status": self._status, "headers": headers})
        for piece in chain((first, second), pieces):
            self._send_now({"type": "http.response.body", "body": piece, "more_body": True})
        self._send_now({"type": "http.response.body", "body": b""})
        self._settle(self.future.set_result, self._status)

    def _send_now(self, message: dict[str, Any]) -> None:
        """Raises TimeoutError if the client reads too slowly."""

        async def send_message() -> None:
            await self._send(message)

        patience = SECONDS + self._bytes_sent / MIN_PACE - self._send_seconds
        start_time = time.monotonic()
        future = asyncio.run_coroutine_threadsafe(send_message(), self._loop)
        try:
            future.result(max(0.0, patience))
        except TimeoutError:
            future.cancel()
            raise
        self._send_seconds += time.monotonic() - start_time
        self._bytes_sent += len(message.get("body", b""))

    def _settle(self, settle: Callable[[Any], None], value: Any) -> None:
        def settle_if_open() -> None:
            if not self.future.done():  # the client may have left
                settle(value)

        self._loop.call_soon_threadsafe(settle_if_open)


def _pieces(response: Iterable[bytes]) -> Iterator[bytes]:
    """The response in pieces. A short response that is made quickly is one piece."""
    parts, size, max_size, start_time = [], 0, _ONE_PIECE, time.monotonic()
    for part in response:
        parts.append(part)
        size += len(part)
        if size > max_size or time.monotonic() - start_time > _PIECE_SECONDS:
            yield b"".join(parts)
            parts, size, max_size, start_time = [], 0, PIECE, time.monotonic()
    yield b"".join(parts)


def _environ(scope: dict[str, Any], body: bytes) -> Environ:
    """The WSGI environment (PEP 3333): text is latin-1, names of headers are in capitals."""
    path = unquote_to_bytes(scope.get("raw_path") or scope["path"].encode())
    host, port = scope.get("server") or ("localhost", 80)
    environ: Environ = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": scope.get("root_path", ""),
        "PATH_INFO": path.decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_NAME": host,
        "SERVER_PORT": str(port),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "REMOTE_ADDR": (scope.get("client") or ("",))[0],
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope["scheme"],
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    for raw_name, raw_value in scope["headers"]:
        # Leave out X_Forwarded_For: it would become the same variable as X-Forwarded-For.
        if b"_" in raw_name:
            continue
        name = raw_name.decode("latin-1").upper().replace("-", "_")
        if name not in {"CONTENT_TYPE", "CONTENT_LENGTH"}:
            name = f"HTTP_{name}"
        value = raw_value.decode("latin-1")
        if name in environ:
            separator = "; " if name == "HTTP_COOKIE" else ","
            value = f"{environ[name]}{separator}{value}"
        environ[name] = value
    if "CONTENT_TYPE" in environ:
        environ["CONTENT_TYPE"] = _content_type(environ["CONTENT_TYPE"])
    # The body has been read: its real length counts, also for a chunked body.
    environ["CONTENT_LENGTH"] = str(len(body)) if body or "CONTENT_LENGTH" in environ else ""
    return environ


def _content_type(value: str) -> str:
    """A Content-Type whose charset Django can use to decode the query. Django does that before any
    middleware runs, and a caller could make it fail."""
    kind = value.partition(";")[0].strip()
    try:
        _kind, parameters = parse_header_parameters(value)
    except (LookupError, TypeError, ValueError):  # odd parameters, as in RFC 2231
        return kind
    if parameters.get("charset", "utf-8").lower() in _CHARSETS:
        return value
    boundary = parameters.get("boundary", "")
    return f'{kind}; boundary="{boundary}"' if _BOUNDARY.fullmatch(boundary) else kind
