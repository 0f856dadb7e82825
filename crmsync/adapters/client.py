"""Requests and answers of the adapters that speak HTTP, over the platform's engine."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import msgspec
from django.conf import settings
from django.utils.translation import gettext as _

from crmsync.adapters.base import CredentialsRefused, CRMAdapter, Record, TooManyCalls
from crmsync.adapters.outcomes import (
    Auth,
    Conflict,
    Invalid,
    Outcome,
    Refused,
    Retry,
    Throttled,
    Unknown,
)
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
def record_answers() -> Iterator[list[Response]]:
    """The answers to the requests (in `Response.request`) that this thread makes meanwhile, for
    people who test a CRM. They hold secrets: see `CRMAdapter.without_secrets`."""
    answers: list[Response] = []
    token = _recorded.set(answers)
    try:
        yield answers
    finally:
        _recorded.reset(token)


_is_ours: ContextVar[Callable[[], bool]] = ContextVar("is_ours", default=lambda: True)


@contextmanager
def send_only_while(is_ours: Callable[[], bool]) -> Iterator[None]:
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
        owner_mark = object()  # an answer that comes too late belongs to no later exchange
        answers = [_nothing(request, "unsent", _("not sent")) for request in requests]
        waiting, unanswered = deque(range(len(requests))), 0
        answered_at = time.monotonic()
        end = answered_at + self.timeout + _GRACE_SECONDS
        while (waiting or unanswered) and (seconds_left := end - time.monotonic()) > 0:
            while waiting and self._engine.free > 0:
                if time.monotonic() - answered_at >= self.timeout or not _is_ours.get()():
                    waiting.clear()
                    break
                number = waiting.popleft()
                requests[number].tag = (owner_mark, number)
                answers[number] = _nothing(requests[number], "timeout", _("No answer came."))
                self._engine.submit(requests[number])
                unanswered += 1
                end = time.monotonic() + self.timeout + _GRACE_SECONDS
            for response in self._engine.poll(seconds_left) if unanswered or waiting else ():
                owner, number = response.request.tag
                if owner is owner_mark:
                    answers[number] = response
                    unanswered -= 1
                if response.status:
                    answered_at = time.monotonic()
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
        all_headers = list(headers)
        data = b""
        if body is not None:
            data = msgspec.json.encode(body)
            if not any(name.lower() == "content-type" for name, _ in all_headers):
                all_headers.append(_JSON)
        return Request(url, data, all_headers, self.timeout, method=method, once=once)

    def close(self) -> None:
        self._engine.close()


def _nothing(request: Request, error: str, detail: str) -> Response:
    return Response(request, 0, b"", b"", 0.0, error, detail, "")


def read_json(response: Response) -> Any:
    """The answer's JSON, or None when it is none."""
    body = readable(response, _ANSWER_CAP)
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def is_json(response: Response) -> bool:
    return read_json(response) is not None or response.body.strip() == b"null"


def json_object(response: Response) -> dict[str, Any]:
    """The answer's JSON object. Raises as `raise_for` does, and Unavailable when it is none."""
    raise_for(response)
    body = read_json(response)
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


def describe(response: Response) -> str:
    """What came, as a sentence for people: the CRM's own words where there are some."""
    if not response.status:
        return response.detail or response.error
    words = _words(read_json(response)) if response.body else ""
    return f"HTTP {response.status}: {words}" if words else f"HTTP {response.status}"


def raise_for(response: Response, default_wait: float = THROTTLED_SECONDS) -> None:
    """Raises what `fields` and `read` may raise, unless a whole 2xx came.

    `throttled` is how long to wait in seconds after a 429 that does not say so.
    """
    if is_whole(response):
        return
    text = describe(response)
    if response.status in (401, 403):
        raise CredentialsRefused(_("The CRM refuses the credentials: %s") % text)
    if response.error in ("address_forbidden", "bad_url"):
        raise InvalidInput(_("The CRM's address cannot be used: %s") % text, "url")
    if 300 <= response.status < 500 and response.status not in (408, 423, 425, 429):
        raise InvalidInput(_("The CRM refuses the request: %s") % text, "url")
    text = _("The CRM cannot be reached: %s") % text
    if response.status == 429 and not response.error:
        raise TooManyCalls(text, wait_seconds(response) or default_wait)
    raise Unavailable(text)


def _words(body: Any) -> str:
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, Mapping):
        return ""
    for name in _MESSAGES:
        words = body.get(name)
        if isinstance(words, Mapping):
            words = _words(words)
        if isinstance(words, str) and words:
            return words
    return ""


# Errors before a byte was sent. Those of the first kind go away by themselves; those of the second
# need a person.
_NOT_SENT = ("dns", "connect", "tls", "unsent")
_NEVER_SENT = ("address_forbidden", "bad_url")
# The wait for statuses that ask for one without saying how long.
_LOCKED_SECONDS = 2.0


def outcome_of_status(
    response: Response, size: int, is_upsert: bool, default_wait: float = THROTTLED_SECONDS
) -> Outcome | None:
    """What the status alone means for `size` records; None for a whole answer with 2xx.

    `throttled` is how long to wait in seconds after a 429 that does not say so.
    """
    if is_whole(response):
        return None
    status, text = response.status, describe(response)
    if not status or response.error:
        return _broken(response, text)
    if status >= 500:
        # The server may have failed after it had stored the record.
        wait = wait_seconds(response)
        return Retry(wait, text) if is_upsert else Unknown(text)
    if status == 429:
        return Throttled(wait_seconds(response) or default_wait)
    if status in (401, 403, 407):
        return Auth(text, of_record=status == 403)
    if status in (408, 423, 425, 477):
        return Retry(wait_seconds(response) or _LOCKED_SECONDS, text)
    if 300 <= status < 400:
        return Auth(_("%s. The CRM's address has changed; redirects are not followed.") % text)
    if size > 1:
        return Refused(text)
    return Conflict("") if status == 409 else Invalid("", text)


def _broken(response: Response, text: str) -> Outcome:
    """No answer, or one that broke off."""
    if response.error in _NEVER_SENT:
        return Auth(_("The address cannot be called: %s") % text)
    if response.error in _NOT_SENT and not response.status:
        return Retry(0.0, text)
    return Unknown(text or response.error)


class RestAdapter(CRMAdapter):
    """`store` is given records that can be written as JSON."""

    def __init__(self, settings: Mapping[str, Any], credentials: Mapping[str, Any]) -> None:
        super().__init__(settings, credentials)
        self.client = HttpClient()

    def close(self) -> None:
        self.client.close()

    @abstractmethod
    def store(self, batch: Sequence[Record]) -> Mapping[str, Outcome]:
        """As `deliver`; the outcomes by the records' keys."""

    def deliver(self, batch: Sequence[Record]) -> Sequence[Outcome]:
        outcomes: dict[str, Outcome] = {}
        good: list[Record] = []
        for record in batch:
            try:
                msgspec.json.encode([record.key, record.fields])
            except (UnicodeEncodeError, TypeError, ValueError, OverflowError) as error:
                text = _("The values cannot be written as JSON: %s.") % type(error).__name__
                outcomes[record.key] = Invalid("", text)
            else:
                good.append(record)
        if good:
            outcomes.update(self.store(good))
        return [outcomes[record.key] for record in batch]
