"""Repeats requests below httpx: every call has it, those of the generated modules too.

A request is repeated only if that cannot do anything twice: it reads, it replaces, its answer says
that nothing was done, or it has an idempotency key. The platform's documentation (*What holds for
every request*) has the table of answers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import aclosing, closing, contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx
from tenacity import AsyncRetrying, Future, RetryCallState, Retrying, stop_before_delay
from tenacity.wait import wait_exponential_jitter

from .errors import (
    PlatformError,
    Unavailable,
    UnexpectedAnswer,
    Unreachable,
    error_of,
    is_page,
    problem_of,
    retry_after,
)

# Of one request, its repeats included: enough for a restart of the platform.
PATIENCE_SECONDS = 120.0
MAX_PAUSE_SECONDS = 60
_READING_METHODS = {"GET", "HEAD", "OPTIONS"}
_REPLACING_METHODS = {"PUT", "DELETE"}
_PRECONDITIONS = ("if-match", "if-none-match")
_PLATFORM_FILE = "/api/v1/platform"
_KEY = re.compile(r"[\x21-\x7e]+")
_INVISIBLE = "\ufeff\u200b"  # a byte order mark, and what web pages put into what is copied
_WAS_LOST = "msgplatform_client.was_lost"  # in a request's extensions: an answer to it was lost
# Nothing was sent before these.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_BROKEN = (
    httpx.TimeoutException,
    httpx.NetworkError,
    httpx.RemoteProtocolError,
    httpx.ProxyError,
)
_pause_between = wait_exponential_jitter(initial=1, max=MAX_PAUSE_SECONDS)


class RetryTransport(httpx.BaseTransport):
    """Repeats a request for `patience` seconds, then raises `Unreachable`, or gives the last
    answer. An answer is read whole, so that a connection that breaks in it is repeated, too."""

    def __init__(self, inner: httpx.BaseTransport, patience: float = PATIENCE_SECONDS) -> None:
        self._inner = inner
        self._patience = patience

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        try:
            return Retrying(**_rules(request, self._patience))(self._attempt, request)
        except httpx.RequestError as error:
            raise _error_without_answer(request, error) from error

    def _attempt(self, request: httpx.Request) -> httpx.Response:
        with _noting_lost(request), closing(self._inner.handle_request(request)) as response:
            response.read()
        return _whole(request, response)

    def close(self) -> None:
        self._inner.close()


class AsyncRetryTransport(httpx.AsyncBaseTransport):
    """The same for asyncio."""

    def __init__(self, inner: httpx.AsyncBaseTransport, patience: float = PATIENCE_SECONDS) -> None:
        self._inner = inner
        self._patience = patience

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        try:
            return await AsyncRetrying(**_rules(request, self._patience))(self._attempt, request)
        except httpx.RequestError as error:
            raise _error_without_answer(request, error) from error

    async def _attempt(self, request: httpx.Request) -> httpx.Response:
        with _noting_lost(request):
            async with aclosing(await self._inner.handle_async_request(request)) as response:
                await response.aread()
        return _whole(request, response)

    async def aclose(self) -> None:
        await self._inner.aclose()


def proxy_of(url: str) -> httpx.URL | None:
    """The address of the proxy that the environment names for a platform, None for none: httpx
    leaves the environment alone where it is given a transport. Raises ValueError for a proxy that
    is no HTTP proxy: httpx waits for one of SOCKS without a time limit."""
    platform = urlsplit(url)
    if proxy_bypass(platform.netloc):
        return None
    proxies = getproxies()
    name = platform.scheme if proxies.get(platform.scheme) else "all"
    address = proxies.get(name)
    if not address:
        return None
    with suppress(httpx.InvalidURL):
        proxy = httpx.URL(address if "://" in address else f"http://{address}")
        if proxy.scheme in {"http", "https"}:
            return proxy
    raise ValueError(
        f"{name.upper()}_PROXY has no address of an HTTP proxy (http:// or https://), and no other "
        f"kind is supported: set {platform.scheme.upper()}_PROXY to one, or write "
        f"{platform.hostname} into NO_PROXY."
    )


def clean_key(key: str) -> str:
    """The API key without the blanks and line ends of the file that it is from. Raises ValueError,
    without the key: errors get into logs."""
    key = key.strip().strip(_INVISIBLE).strip()
    if not _KEY.fullmatch(key):
        raise ValueError("The API key is empty, or has characters that no API key has.")
    return key


def raise_problem(response: httpx.Response) -> None:
    """A hook of httpx: raises the error of an answer that is none of 2xx, or that is a page."""
    if not response.is_success or is_page(response):
        response.read()
        raise error_of(response)


async def raise_problem_async(response: httpx.Response) -> None:
    """The same for asyncio."""
    if not response.is_success or is_page(response):
        await response.aread()
        raise error_of(response)


def _rules(request: httpx.Request, patience: float) -> dict[str, Any]:
    """Arguments of tenacity's `Retrying`."""
    return {
        "retry": _can_repeat(request),
        "wait": _pause,
        # No pause begins that would last beyond it.
        "stop": stop_before_delay(patience),
        "retry_error_callback": _last_result,
    }


def _can_repeat(request: httpx.Request) -> Callable[[RetryCallState], bool]:
    def can_repeat(state: RetryCallState) -> bool:
        outcome = _outcome(state)
        error = outcome.exception()
        if error is not None:
            is_harmless = isinstance(error, _NOT_SENT) or is_repeatable(request)
            return isinstance(error, _BROKEN) and is_harmless
        response: httpx.Response = outcome.result()
        if response.status_code == 429:
            return True
        if response.status_code < 500 and response.status_code != 408:
            return False
        return _did_nothing(response) or is_repeatable(request)

    return can_repeat


def _did_nothing(response: httpx.Response) -> bool:
    return str(problem_of(response).get("type", "")).endswith("/problems/unavailable")


def is_repeatable(request: httpx.Request) -> bool:
    """True if carrying the request out twice has the same result as once: by its method, or by an
    idempotency key in its header, in its body, or in each item of its batch."""
    if request.method in _READING_METHODS or "idempotency-key" in request.headers:
        return True
    if request.method in _REPLACING_METHODS:
        return not _is_answered_once(request)
    try:
        body = json.loads(request.content)
    except ValueError:
        return False
    if not isinstance(body, dict):
        return False
    batches = [value for value in body.values() if isinstance(value, list)]
    is_batch_with_keys = request.url.path.endswith("/batch") and all(
        isinstance(item, dict) and item.get("idempotency_key")
        for batch in batches
        for item in batch
    )
    return bool(body.get("idempotency_key")) or is_batch_with_keys


def may_have_happened(error: PlatformError) -> bool:
    """True if the request may have been carried out although its answer does not say so. For
    requests that are not repeated then: of others the error is that of the last attempt."""
    if isinstance(error, Unavailable):
        return error.kind != "unavailable"
    return isinstance(error, Unreachable) and not isinstance(error.__cause__, _NOT_SENT)


def _is_answered_once(request: httpx.Request) -> bool:
    """True if a repeat can hide what the first request did: its precondition does not hold any
    more, or the answer that was lost has the only copy of new secrets."""
    if any(name in request.headers for name in _PRECONDITIONS):
        return True
    is_trial = request.url.params.get("dry_run") == "true"
    return request.url.path.endswith(_PLATFORM_FILE) and not is_trial


def _pause(state: RetryCallState) -> float:
    """Seconds until the next attempt: what the answer says, and never less than the backoff."""
    pause = _pause_between(state)
    outcome = _outcome(state)
    return pause if outcome.failed else max(pause, retry_after(outcome.result()) or 0.0)


@contextmanager
def _noting_lost(request: httpx.Request) -> Iterator[None]:
    try:
        yield
    except _BROKEN as error:
        if not isinstance(error, _NOT_SENT):
            request.extensions[_WAS_LOST] = True
        raise


def _whole(request: httpx.Request, response: httpx.Response) -> httpx.Response:
    """An answer that was read. Nothing is there to delete after a deletion whose own answer was
    lost: it has succeeded."""
    if request.extensions.get(_WAS_LOST) and request.method == "DELETE":
        if response.status_code == httpx.codes.NOT_FOUND:
            return httpx.Response(httpx.codes.NO_CONTENT, request=request)
    elif response.is_server_error and not _did_nothing(response):
        request.extensions[_WAS_LOST] = True
    return response


def _last_result(state: RetryCallState) -> Any:
    """The last answer; raises the last error."""
    return _outcome(state).result()


def _outcome(state: RetryCallState) -> Future:
    """The result of the latest attempt; tenacity's rules are asked only when there is one."""
    if state.outcome is None:
        raise RuntimeError("no attempt was made yet")
    return state.outcome


def _error_without_answer(request: httpx.Request, error: httpx.RequestError) -> PlatformError:
    """The error that stands for one of httpx."""
    address = f"{request.url.scheme}://{request.url.netloc.decode('ascii')}"
    reason = str(error) or type(error).__name__
    if isinstance(error, httpx.DecodingError):
        return UnexpectedAnswer(f"The answer of {address} cannot be decoded: {reason}")
    return Unreachable(f"{address} does not answer: {reason}")
