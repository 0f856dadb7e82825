"""Requests and answers of the adapters that speak HTTP, over the platform's engine."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import msgspec
from django.conf import settings
from django.utils.translation import gettext as _

from crmsync.adapters.base import CredentialsRefused, TooManyCalls
from msgplatform.core.errors import InvalidInput, Unavailable
from msgplatform.core.http.engine import Request, Response, engine_from_settings
from msgplatform.core.http.response import readable, retry_after

TIMEOUT_SECONDS = 30.0
# The longest that a call may take: the handler's leases are made for it.
CALL_SECONDS = 60.0
# Without an answer so long after the requests' own deadline, it is the engine that has failed, not
# the CRM.
_GRACE_SECONDS = 5.0
_ANSWER_CAP = 8 * 1024 * 1024  # bytes
# The wait after a 429 that does not say how long.
THROTTLED_SECONDS = 10.0
_JSON = ("content-type", "application/json")
# Where answers put the sentence for people.
_MESSAGES = ("message", "detail", "error_description", "errmsg", "error", "title")


_recorded: ContextVar[list[Response] | None] = ContextVar("recorded", default=None)


@contextmanager
def recorded() -> Iterator[list[Response]]:
    """The answers to the requests (in `Response.request`) that this thread makes meanwhile, for
    people who test a CRM. They hold secrets: see `CRMAdapter.without_secrets`."""
    found: list[Response] = []
    token = _recorded.set(found)
    try:
        yield found
    finally:
        _recorded.reset(token)


_is_ours: ContextVar[Callable[[], bool]] = ContextVar("is_ours", default=lambda: True)


@contextmanager
def only_while(is_ours: Callable[[], bool]) -> Iterator[None]:
    """This thread asks before each request whether it still may send: another process may have
    taken over what it sends, while this one was stopped between two requests of a call."""
    token = _is_ours.set(is_ours)
    try:
        yield
    finally:
        _is_ours.reset(token)


class HttpClient:
    """`window` requests at a time, on connections that are kept alive. The address guard and the
    proxy are those of the settings OUTBOUND_*."""

    def __init__(self, window: int = 1, timeout: float = TIMEOUT_SECONDS) -> None:
        # A process that was stopped for longer than its lease must not go on with a request that
        # another one may have made meanwhile. libcurl gives up a late request before it sends it.
        self.timeout = min(timeout, CALL_SECONDS, settings.CRM_LEASE_SECONDS / 4)
        self._engine = engine_from_settings(window=window, body_cap=_ANSWER_CAP)

    def exchange(self, requests: Sequence[Request]) -> list[Response]:
        """The answers, in the order of the requests. Each has a deadline of its own, from when it
        is sent. What is left is not sent once nothing was answered for as long, or the caller has
        lost what it sends (`only_while`)."""
        mine = object()  # an answer that comes too late belongs to no later exchange
        answers = [_nothing(request, "unsent", _("not sent")) for request in requests]
        waiting, missing = deque(range(len(requests))), 0
        answered = time.monotonic()
        end = answered + self.timeout + _GRACE_SECONDS
        while (waiting or missing) and (left := end - time.monotonic()) > 0:
            while waiting and self._engine.free > 0:
                if time.monotonic() - answered >= self.timeout or not _is_ours.get()():
                    waiting.clear()
                    break
                number = waiting.popleft()
                requests[number].tag = (mine, number)
                answers[number] = _nothing(requests[number], "timeout", _("No answer came."))
                self._engine.submit(requests[number])
                missing += 1
                end = time.monotonic() + self.timeout + _GRACE_SECONDS
            for response in self._engine.poll(left) if missing or waiting else ():
                owner, number = response.request.tag
                if owner is mine:
                    answers[number] = response
                    missing -= 1
                if response.status:
                    answered = time.monotonic()
        if (record := _recorded.get()) is not None:
            record.extend(answers)
        return answers

    def ask(
        self, method: str, url: str, headers: Iterable[tuple[str, str]] = (), body: Any = None
    ) -> Response:
        """One request; a `body` goes as JSON."""
        return self.exchange([self.request(method, url, headers, body)])[0]

    def request(
        self,
        method: str,
        url: str,
        headers: Iterable[tuple[str, str]] = (),
        body: Any = None,
        once: bool = False,
    ) -> Request:
        """`once`: a second one would make a second record."""
        given = list(headers)
        data = b""
        if body is not None:
            data = msgspec.json.encode(body)
            if not any(name.lower() == "content-type" for name, _ in given):
                given.append(_JSON)
        return Request(url, data, given, self.timeout, method=method, once=once)

    def close(self) -> None:
        self._engine.close()


def _nothing(request: Request, error: str, detail: str) -> Response:
    return Response(request, 0, b"", b"", 0.0, error, detail, "")


def decoded(response: Response) -> Any:
    """The answer's JSON, or None when it is none."""
    body = readable(response, _ANSWER_CAP)
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def is_json(response: Response) -> bool:
    return decoded(response) is not None or response.body.strip() == b"null"


def json_object(response: Response) -> dict[str, Any]:
    """The answer's JSON object. Raises as `raise_for` does, and Unavailable when it is none."""
    raise_for(response)
    body = decoded(response)
    if not isinstance(body, dict):
        # A login page, or a proxy: this answer is not the CRM's.
        raise Unavailable(_("The answer is no JSON object: is this the right address?"))
    return body


def is_whole(response: Response) -> bool:
    """Whether a 2xx answer came, to its last byte."""
    return 200 <= response.status < 300 and not response.error


def wait_seconds(response: Response) -> float:
    """What Retry-After asks for, 0.0 without one."""
    return retry_after(response.headers, time.time())


def described(response: Response) -> str:
    """What came, as a sentence for people: the CRM's own words where there are some."""
    if not response.status:
        return response.detail or response.error
    words = _words(decoded(response)) if response.body else ""
    return f"HTTP {response.status}: {words}" if words else f"HTTP {response.status}"


def raise_for(response: Response, throttled: float = THROTTLED_SECONDS) -> None:
    """Raises what `fields` and `read` may raise, unless a whole 2xx came.

    `throttled` is how long to wait in seconds after a 429 that does not say so.
    """
    if is_whole(response):
        return
    text = described(response)
    if response.status in (401, 403):
        raise CredentialsRefused(_("The CRM refuses the credentials: %s") % text)
    if response.error in ("address_forbidden", "bad_url"):
        raise InvalidInput(_("The CRM's address cannot be used: %s") % text, "url")
    if 300 <= response.status < 500 and response.status not in (408, 423, 425, 429):
        raise InvalidInput(_("The CRM refuses the request: %s") % text, "url")
    text = _("The CRM cannot be reached: %s") % text
    if response.status == 429 and not response.error:
        raise TooManyCalls(text, wait_seconds(response) or throttled)
    raise Unavailable(text)


def _words(body: Any) -> str:
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, Mapping):
        return ""
    for name in _MESSAGES:
        found = body.get(name)
        if isinstance(found, Mapping):
            found = _words(found)
        if isinstance(found, str) and found:
            return found
    return ""
