"""HTTP for adapters: requests over the platform's engine, the meaning of an answer's status, and
`RestAdapter`, the base of the adapters for particular products."""

import time
from abc import abstractmethod
from codecs import BOM_UTF8
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import msgspec
from django.conf import settings
from django.utils.translation import gettext as _

from crmsync.adapters.base import (
    CredentialsRefused,
    CRMAdapter,
    Record,
    RequestRefused,
    TooManyCalls,
    outcome_of_error,
)
from crmsync.adapters.outcomes import (
    Auth,
    Conflict,
    Invalid,
    Outcome,
    Refused,
    Retry,
    Throttled,
    Unknown,
    note_gone,
)
from crmsync.adapters.records import NOT_JSON, describe_not_json
from crmsync.adapters.settings import AdapterSettings, addresses_in
from msgplatform.core.errors import InvalidInput, Unavailable
from msgplatform.core.http import destinations
from msgplatform.core.http.engine import Request, Response, engine_from_settings
from msgplatform.core.http.response import charset, readable, retry_after

TIMEOUT_SECONDS = 30.0
# Maximum seconds of a call. The handler's leases are longer.
CALL_SECONDS = 60.0
# Without an answer so many seconds after a request's own deadline, the engine is at fault, not the
# CRM.
_GRACE_SECONDS = 5.0
_ANSWER_CAP = 8 * 1024 * 1024  # bytes
# Seconds to wait after a 429 without Retry-After.
THROTTLED_SECONDS = 10.0
_JSON = ("content-type", "application/json")
# The names of JSON properties that hold a sentence for people.
_MESSAGES = ("message", "detail", "error_description", "errmsg", "error", "title")


_answer_log: ContextVar[list[Response] | None] = ContextVar("answer_log", default=None)


@contextmanager
def record_answers() -> Iterator[list[Response]]:
    """Collect this thread's answers inside the block, with their requests in `Response.request`,
    for people who test a CRM. The answers hold secrets: see `CRMAdapter.without_secrets`."""
    answers: list[Response] = []
    token = _answer_log.set(answers)
    try:
        yield answers
    finally:
        _answer_log.reset(token)


_is_ours: ContextVar[Callable[[], bool]] = ContextVar("is_ours", default=lambda: True)


@contextmanager
def send_only_while(is_ours: Callable[[], bool]) -> Iterator[None]:
    """Ask `is_ours()` before each request of this thread inside the block: if this process was
    stopped between two requests of a call, another process may have taken over the records."""
    token = _is_ours.set(is_ours)
    try:
        yield
    finally:
        _is_ours.reset(token)


class HttpClient:
    """Sends `window` requests at a time over connections that are kept alive. The settings
    OUTBOUND_* say which addresses are allowed and which proxy is used.

    Requests go only to the servers of URLs in `crm_settings`, and to those of `allow`: stored
    credentials are kept for these servers, and a path or a template could name another one."""

    def __init__(
        self, crm_settings: AdapterSettings, window: int = 1, timeout: float = TIMEOUT_SECONDS
    ) -> None:
        self._origins = set(addresses_in(msgspec.to_builtins(crm_settings)))
        # libcurl drops a late request before sending it. A process that was stopped for longer than
        # its lease must not send a request that another process may have sent meanwhile.
        self.timeout = min(timeout, CALL_SECONDS, settings.CRM_LEASE_SECONDS / 4)
        self._engine = engine_from_settings(window=window, body_cap=_ANSWER_CAP)

    def exchange(self, requests: Sequence[Request]) -> list[Response]:
        """Send requests and return their answers in the same order. Each request has a deadline of
        its own, counted from when it is sent. The remaining requests are not sent once no answer
        has come for that long, or `send_only_while` forbids it."""
        mark = object()  # a late answer must not count for a later exchange
        answers = [_no_answer(request, "unsent", _("not sent")) for request in requests]
        unsent_numbers, open_count = deque[int](), 0
        for number, request in enumerate(requests):
            if self._is_foreign(request.url):
                text = _("No URL of the settings names this server.")
                answers[number] = _no_answer(request, "address_forbidden", text)
            else:
                unsent_numbers.append(number)
        answered_at = time.monotonic()
        end = answered_at + self.timeout + _GRACE_SECONDS
        while (unsent_numbers or open_count) and (seconds_left := end - time.monotonic()) > 0:
            while unsent_numbers and self._engine.free > 0:
                if time.monotonic() - answered_at >= self.timeout or not _is_ours.get()():
                    unsent_numbers.clear()
                    break
                number = unsent_numbers.popleft()
                requests[number].tag = (mark, number)
                answers[number] = _no_answer(requests[number], "timeout", _("No answer came."))
                self._engine.submit(requests[number])
                open_count += 1
                end = time.monotonic() + self.timeout + _GRACE_SECONDS
            for response in self._engine.poll(seconds_left) if open_count or unsent_numbers else ():
                answer_mark, number = response.request.tag
                if answer_mark is mark:
                    answers[number] = response
                    open_count -= 1
                if response.status:
                    answered_at = time.monotonic()
        if (answer_log := _answer_log.get()) is not None:
            answer_log.extend(answers)
        return answers

    def ask(
        self, method: str, url: str, headers: Iterable[tuple[str, str]] = (), body: Any = None
    ) -> Response:
        """Send one request; `body` goes as JSON."""
        return self.exchange([self.request(method, url, headers, body)])[0]

    def request(
        self,
        method: str,
        url: str,
        headers: Iterable[tuple[str, str]] = (),
        body: Any = None,
        is_unrepeatable: bool = False,
    ) -> Request:
        """Build a request. `is_unrepeatable`: a repetition would make a second record."""
        all_headers = list(headers)
        data = b""
        if body is not None:
            data = msgspec.json.encode(body)
            if not any(name.lower() == "content-type" for name, _ in all_headers):
                all_headers.append(_JSON)
        return Request(url, data, all_headers, self.timeout, method=method, once=is_unrepeatable)

    def allow(self, url: str) -> None:
        """Let requests go to the server of this URL, too: the code or the CRM itself names it."""
        self._origins.add(destinations.origin(url))

    def _is_foreign(self, url: str) -> bool:
        """True if the URL's server is not allowed. The engine refuses an unreadable URL."""
        try:
            return destinations.parse(url).origin not in self._origins
        except InvalidInput:
            return False

    def close(self) -> None:
        self._engine.close()


def _no_answer(request: Request, error: str, detail: str) -> Response:
    return Response(request, 0, b"", b"", 0.0, error, detail, "")


def read_json(response: Response) -> Any:
    """The JSON of an answer, None when it has no valid JSON. A byte order mark is passed over."""
    body = readable(response, _ANSWER_CAP).removeprefix(BOM_UTF8)
    # JSON is UTF-8 (RFC 8259, 8.1), and some servers name another charset for it. Others mean it.
    for codec in ("utf-8", charset(response.headers)):
        with suppress(msgspec.DecodeError, UnicodeError, RecursionError):
            return msgspec.json.decode(body.decode(codec))
    return None


def is_json(response: Response) -> bool:
    is_null = response.body.removeprefix(BOM_UTF8).strip() == b"null"
    return is_null or read_json(response) is not None


def json_object(response: Response, outcome: Outcome | None = None) -> dict[str, Any]:
    """The JSON object of an answer. Raises as `raise_for` does, and Unavailable for other JSON."""
    raise_for(response, outcome)
    body = read_json(response)
    if not isinstance(body, dict):
        # The body is no JSON object: it comes from a login page or a proxy, not from the CRM.
        raise Unavailable(_("The answer is no JSON object: is this the right address?"))
    return body


def is_whole(response: Response) -> bool:
    """True if a 2xx answer came to its last byte."""
    return 200 <= response.status < 300 and not response.error


def wait_seconds(response: Response) -> float:
    """The seconds of the header Retry-After, 0.0 without one."""
    return retry_after(response.headers, time.time())


def describe(response: Response) -> str:
    """A sentence for people about an answer, with the CRM's own words if it has some."""
    if not response.status:
        return response.detail or response.error
    words = _words(read_json(response)) if response.body else ""
    return f"HTTP {response.status}: {words}" if words else f"HTTP {response.status}"


def raise_for(
    response: Response, outcome: Outcome | None = None, default_wait: float = THROTTLED_SECONDS
) -> None:
    """Raises the errors of `fields` and `read`, unless a whole 2xx answer came.

    `outcome` is what the answer would mean for a record that it stores: with Auth, Retry and
    Throttled no record is at fault. `default_wait` is in seconds, for a 429 without Retry-After.
    """
    if is_whole(response):
        return
    text = describe(response)
    if isinstance(outcome, Throttled):
        raise TooManyCalls(text, outcome.after)
    words = _("The CRM refuses the request: %s")
    if is_login := response.status in (401, 402, 403, 407):
        words = _("The CRM refuses the credentials: %s")
    if is_login or (isinstance(outcome, Auth) and not response.error):
        raise CredentialsRefused(words % text)
    if response.error in ("address_forbidden", "bad_url"):
        raise InvalidInput(_("The CRM's address cannot be used: %s") % text, "url")
    is_passing = isinstance(outcome, Retry) or response.status in (408, 423, 425, 429, 477)
    if 300 <= response.status < 500 and not is_passing:
        raise RequestRefused(words % text, "url")
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


# Errors before any byte was sent. The first kind ends by itself, the second needs a person.
_NOT_SENT = ("dns", "connect", "tls", "unsent")
_NEVER_SENT = ("address_forbidden", "bad_url")
# Seconds to wait after a status that asks for a pause without naming a time.
_LOCKED_SECONDS = 2.0


def outcome_of_status(
    response: Response, size: int, is_upsert: bool, default_wait: float = THROTTLED_SECONDS
) -> Outcome | None:
    """The outcome that the status alone gives to `size` records; None for a whole 2xx answer.

    `default_wait` is in seconds, for a 429 without Retry-After.
    """
    if is_whole(response):
        return None
    status, text = response.status, describe(response)
    if not status or response.error:
        if response.error in _NEVER_SENT:
            return Auth(_("The address cannot be called: %s") % text)
        if response.error in _NOT_SENT and not response.status:
            return Retry(0.0, text)
        return Unknown(text or response.error)
    if status >= 500:
        # The server may have failed after it had stored the record.
        wait = wait_seconds(response)
        return Retry(wait, text) if is_upsert else Unknown(text)
    if status == 429:
        return Throttled(wait_seconds(response) or default_wait)
    if status in (401, 402, 403, 407):  # 402: the CRM's subscription has ended
        return Auth(text, of_record=status == 403)
    if status in (408, 423, 425, 477):
        return Retry(wait_seconds(response) or _LOCKED_SECONDS, text)
    if 300 <= status < 400:
        return Auth(_("%s. The CRM's address has changed; redirects are not followed.") % text)
    if size > 1:
        return Refused(text)
    return Conflict("") if status == 409 else Invalid("", text)


class RestAdapter(CRMAdapter):
    """Base of adapters with an HTTP client. `store` gets only records that are valid JSON."""

    def __init__(self, settings: Mapping[str, Any], credentials: Mapping[str, Any]) -> None:
        super().__init__(settings, credentials)
        self.client = HttpClient(self.settings)
        # An adapter of others may have a URL among its credentials, because it holds a token.
        for url in addresses_in(msgspec.to_builtins(self.credentials)):
            self.client.allow(url)

    def close(self) -> None:
        self.client.close()

    @abstractmethod
    def store(self, batch: Sequence[Record]) -> Mapping[str, Outcome]:
        """Like `deliver`, but the outcomes are keyed by the records' keys."""

    def deliver(self, batch: Sequence[Record]) -> Sequence[Outcome]:
        outcomes: dict[str, Outcome] = {}
        for record in batch:
            try:
                msgspec.json.encode([record.key, record.fields])
            except NOT_JSON as error:
                outcomes[record.key] = Invalid("", describe_not_json(error))
        if valid_records := [record for record in batch if record.key not in outcomes]:
            outcomes.update(self.store(valid_records))
        return [outcomes[record.key] for record in batch]


class UpsertAdapter(RestAdapter):
    """Base of adapters for CRMs that update records by remote id, and store others by key."""

    def store(self, batch: Sequence[Record]) -> Mapping[str, Outcome]:
        outcomes: dict[str, Outcome] = {}
        deletions = [record for record in batch if record.deleted]
        updates = [record for record in batch if record.remote_id and not record.deleted]
        others = [record for record in batch if not record.remote_id and not record.deleted]
        missing: Sequence[Record] = ()
        try:
            if updates:
                update_outcomes, missing = self.update(updates)
                outcomes.update(update_outcomes)
                # These records were deleted in the CRM: store them anew, by key.
                others += [msgspec.structs.replace(record, remote_id="") for record in missing]
            if others:
                outcomes.update(self.upsert(others))
                outcomes.update((record.key, note_gone(outcomes[record.key])) for record in missing)
            if deletions:
                outcomes.update(self.delete(deletions))
        except (CredentialsRefused, Unavailable, InvalidInput) as error:
            # No further record was sent: a token or the ids to be deleted could not be read.
            outcome = outcome_of_error(error)
            outcomes.update((r.key, outcome) for r in batch if r.key not in outcomes)
        return outcomes

    @abstractmethod
    def update(self, records: Sequence[Record]) -> tuple[dict[str, Outcome], Sequence[Record]]:
        """Update by remote id. Returns the outcomes, and the records that the CRM does not hold.
        Here and below the errors of `fields` mean that no record was sent."""

    @abstractmethod
    def upsert(self, records: Sequence[Record]) -> Mapping[str, Outcome]:
        """Store by key."""

    @abstractmethod
    def delete(self, records: Sequence[Record]) -> Mapping[str, Outcome]:
        """Delete records. A record that the CRM does not hold counts as deleted."""
