"""Repeats requests below httpx: every call has it, those of the generated modules too.

A request is repeated only if that cannot do anything twice: it reads, it replaces, its answer says
that nothing was done, or it has an idempotency key. The platform's documentation (*What holds for
every request*) has the table of answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
from tenacity import AsyncRetrying, Future, RetryCallState, Retrying, stop_before_delay
from tenacity.wait import wait_exponential_jitter

from .errors import Unreachable, error_of, problem_of, retry_after

# Of one request, its repeats included: enough for a restart of the platform.
PATIENCE_SECONDS = 120.0
MAX_PAUSE_SECONDS = 60
_HARMLESS_METHODS = {"GET", "HEAD", "OPTIONS", "PUT", "DELETE"}
_UNCERTAIN_STATUSES = {408, 500, 502, 503, 504}
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
    answer."""

    def __init__(self, inner: httpx.BaseTransport, patience: float = PATIENCE_SECONDS) -> None:
        self._inner = inner
        self._patience = patience

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        try:
            return Retrying(**_rules(request, self._patience))(self._attempt, request)
        except httpx.TransportError as error:
            raise _unreachable(request, error) from error

    def _attempt(self, request: httpx.Request) -> httpx.Response:
        response = self._inner.handle_request(request)
        if not response.is_success:
            response.read()  # the problem's type decides; the connection is free again
        return response

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
        except httpx.TransportError as error:
            raise _unreachable(request, error) from error

    async def _attempt(self, request: httpx.Request) -> httpx.Response:
        response = await self._inner.handle_async_request(request)
        if not response.is_success:
            await response.aread()
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


def raise_problem(response: httpx.Response) -> None:
    """A hook of httpx: raises the error of an answer that is none of 2xx."""
    if not response.is_success:
        response.read()
        raise error_of(response)


async def raise_problem_async(response: httpx.Response) -> None:
    """The same for asyncio."""
    if not response.is_success:
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
        if response.status_code not in _UNCERTAIN_STATUSES:
            return False
        did_nothing = str(problem_of(response).get("type", "")).endswith("/problems/unavailable")
        return did_nothing or is_repeatable(request)

    return can_repeat


def is_repeatable(request: httpx.Request) -> bool:
    """True if carrying the request out twice has the same result as once: by its method, or by an
    idempotency key in its header, in its body, or in each item of its batch."""
    if request.method in _HARMLESS_METHODS or "idempotency-key" in request.headers:
        return True
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


def _pause(state: RetryCallState) -> float:
    """Seconds until the next attempt: what the answer says, and never less than the backoff."""
    pause = _pause_between(state)
    outcome = _outcome(state)
    return pause if outcome.failed else max(pause, retry_after(outcome.result()) or 0.0)


def _last_result(state: RetryCallState) -> Any:
    """The last answer; raises the last error."""
    return _outcome(state).result()


def _outcome(state: RetryCallState) -> Future:
    """The result of the latest attempt; tenacity's rules are asked only when there is one."""
    if state.outcome is None:
        raise RuntimeError("no attempt was made yet")
    return state.outcome


def _unreachable(request: httpx.Request, error: httpx.TransportError) -> Unreachable:
    address = f"{request.url.scheme}://{request.url.netloc.decode('ascii')}"
    return Unreachable(f"{address} does not answer: {error or type(error).__name__}")
