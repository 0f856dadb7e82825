"""Errors of the platform and of the way to it, each with the answer to: is it worth repeating?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx


class PlatformError(Exception):
    """The base of all errors of this package.

    `is_permanent` is True if the same request can never succeed: correct it, or the API key. After
    any other error the same request may be repeated with the same idempotency key.
    """

    is_permanent: bool = False


class Unreachable(PlatformError):
    """No answer: the platform is away, or the connection broke. It may or may not have happened."""


class UnexpectedAnswer(PlatformError):
    """An answer that this release of the client cannot read: the platform may be newer, or
    something else answers at its address."""

    is_permanent = True


class NotThePlatform(UnexpectedAnswer):
    """A page for people: a proxy's, or that of a sign-in. The platform may be there again later."""

    is_permanent = False


@dataclass(frozen=True)
class FieldError:
    """A wrong field of a request, and what to change."""

    field: str
    message: str


class ProblemError(PlatformError):
    """The platform's answer to a request that it did not carry out (RFC 9457).

    `kind` is the stable name, such as `invalid-input`; it is '' when something between has
    answered. `retry_after` is in seconds, None if the answer does not say it.
    """

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after: float | None) -> None:
        self.status = status
        self.kind = _kind_of(problem)
        # Proxies have statuses of their own, such as 499 and 520, without a phrase.
        phrase = httpx.codes.get_reason_phrase(status) or f"HTTP {status}"
        self.title = str(problem.get("title", "")) or phrase
        self.detail = str(problem.get("detail", ""))
        self.errors: Sequence[FieldError] = [
            FieldError(str(entry.get("field", "")), str(entry.get("message", "")))
            for entry in error_entries(problem)
        ]
        self.retry_after = retry_after
        self.problem = problem
        super().__init__(f"{status} {self.title}: {self.detail}".removesuffix(": "))


class Refused(ProblemError):
    """The request is wrong, and repeating it does not help."""

    is_permanent = True


class NotAuthorized(Refused):
    """The API key is not valid, or lacks a scope (401, 403)."""


class NotFound(Refused):
    """Nothing has this id or this address (404)."""


class KeyConflict(Refused):
    """This idempotency key was used for another content (409)."""


class NotNow(ProblemError):
    """The platform cannot do it now; the detail says what prevents it (409)."""


class Throttled(ProblemError):
    """Too many requests: repeat after `retry_after` seconds (429)."""


class Unavailable(ProblemError):
    """The platform, or something before it, is out of order at the moment (408, 5xx)."""


class OutcomeUnknown(Unavailable):
    """It may or may not have happened: repeat it with the same idempotency key (503)."""


_BY_KIND: Mapping[str, type[ProblemError]] = {
    "conflict": KeyConflict,
    "not-now": NotNow,
    "outcome-unknown": OutcomeUnknown,
}
_BY_STATUS: Mapping[int, type[ProblemError]] = {
    401: NotAuthorized,
    403: NotAuthorized,
    404: NotFound,
    408: Unavailable,
    429: Throttled,
}


def problem_of(response: httpx.Response) -> Mapping[str, Any]:
    """The problem document of an answer that was read; {} when it has none."""
    if "json" not in response.headers.get("content-type", ""):
        return {}
    try:
        document = response.json()
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def error_entries(problem: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The entries of `errors`. Other servers write there what they like: it is left out."""
    entries = problem.get("errors")
    if not isinstance(entries, list):
        return []
    return [entry for entry in entries if isinstance(entry, dict)]


def retry_after(response: httpx.Response) -> float | None:
    """Seconds from now, whether the header has seconds or a date; None without the header."""
    text = response.headers.get("retry-after", "")
    if text.isascii() and text.isdecimal():
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):  # such as a year of twenty digits
        return None
    if moment.tzinfo is None:  # as RFC 5322 writes UTC of an unknown zone
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def is_page(response: httpx.Response) -> bool:
    """True if the answer is a page for people: a proxy's, or that of a sign-in, whatever its
    status."""
    return response.is_success and response.headers.get("content-type", "").startswith("text/html")


def error_of(response: httpx.Response) -> PlatformError:
    """The error that stands for an answer that was read and is none of 2xx, or that is a page."""
    if is_page(response):
        return NotThePlatform("Something else answered with a page: a proxy, or a sign-in.")
    if response.has_redirect_location:
        return UnexpectedAnswer(
            f"The platform is at another address: {response.headers['location']}"
        )
    problem, status = problem_of(response), response.status_code
    error_class = _BY_KIND.get(_kind_of(problem)) or _BY_STATUS.get(status)
    if error_class is None:
        error_class = Unavailable if status >= 500 else Refused
    return error_class(status, problem, retry_after(response))


def _kind_of(problem: Mapping[str, Any]) -> str:
    return str(problem.get("type", "")).rpartition("/problems/")[2]
