"""Problems: answers as RFC 9457 defines them, and exceptions of ours that become such answers."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from django.http import HttpResponse
from rest_framework import exceptions as drf

CONTENT_TYPE = "application/problem+json"
# Long enough for a restart of a server, short enough that callers do not give up.
RETRY_AFTER_SECONDS = 5


class Kind(msgspec.Struct, frozen=True):
    """A type of problem; `help` is the text of its page below the title."""

    slug: str
    status: int
    title: str
    help: str

    @property
    def uri(self) -> str:
        return f"/problems/{self.slug}"


class Problem(msgspec.Struct, frozen=True):
    """One answer: its kind and details; `more` has members beyond those of RFC 9457."""

    kind: Kind
    detail: str
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    more: Mapping[str, Any] = msgspec.field(default_factory=dict)

    def response(self) -> HttpResponse:
        """Already encoded, so that no renderer of the view can fail on it."""
        body = {
            "type": self.kind.uri,
            "title": self.kind.title,
            "status": self.kind.status,
            "detail": self.detail,
            **self.more,
        }
        return HttpResponse(
            msgspec.json.encode(body),
            status=self.kind.status,
            content_type=CONTENT_TYPE,
            headers=dict(self.headers),
        )


class BodyTooLarge(drf.APIException):
    """The body is longer than the view takes."""

    status_code = HTTPStatus.REQUEST_ENTITY_TOO_LARGE

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"Send at most {max_bytes} bytes in one request.")
        self.max_bytes = max_bytes


class BodyTooSlow(drf.APIException):
    status_code = HTTPStatus.REQUEST_TIMEOUT
    default_detail = "The body did not arrive in time."


class MissingScope(drf.PermissionDenied):
    """The API key is valid, but lacks the scope that the view needs."""

    def __init__(self, scope: str) -> None:
        super().__init__(f"Use an API key with the scope {scope}.")
        self.scope = scope


_ALL = (
    Kind("invalid-input", 400, "The request has wrong values",
         "`errors` lists each wrong field. Repeating the same request cannot succeed."),
    Kind("malformed-body", 400, "The body is not valid JSON",
         "`detail` says what is wrong, mostly with the byte at which reading stopped."),
    Kind("bad-request", 400, "The request cannot be read", "It breaks the rules of HTTP."),
    Kind("unauthenticated", 401, "A valid API key is needed",
         "Send it as `Authorization: Bearer mp_…`. The answer is the same for a key that is "
         "missing, wrong, expired or revoked, or whose business system is disabled."),
    Kind("forbidden", 403, "This is not allowed", "The caller may not do this."),
    Kind("missing-scope", 403, "The API key lacks a scope",
         "`required_scope` names it. Give the key this scope in the console, or make another key."),
    Kind("limited-key", 403, "The API key is limited to some business systems",
         "The request shows or changes something of the whole platform, not of these systems "
         "alone. Use a management key without a limit."),
    Kind("not-found", 404, "There is nothing here", "The address or the id does not exist."),
    Kind("method-not-allowed", 405, "The method does not work here",
         "The header Allow lists the methods that do."),
    Kind("request-timeout", 408, "The request did not arrive in time",
         "Send it again, over a connection that carries at least 16 KiB a second."),
    Kind("not-acceptable", 406, "No such representation", "Answers are application/json."),
    Kind("conflict", 409, "The same key was used with another content",
         "An idempotency key stands for one request. Use a new key for a new request."),
    Kind("not-now", 409, "This cannot be done now", "`detail` says what prevents it."),
    Kind("already-listening", 409, "Another listener has the place",
         "One listener at a time gets the deliveries. Wait for as many seconds as the header "
         "Retry-After says, or take over with `take_over`."),
    Kind("lease-lost", 409, "The lease has ended",
         "The lease under this `claim` ended, and the delivery was given out again. This result "
         "was not counted; ask for the next delivery."),
    Kind("changed", 412, "Somebody else has changed it",
         "Its version is another one than `If-Match` names. `differences` has each field that "
         "differs, as it is `stored` and as it was `sent`. Read it again, and decide."),
    Kind("body-too-large", 413, "The body is too large",
         "`max_bytes` is the most that this address takes. Send several smaller requests."),
    Kind("unsupported-media-type", 415, "The body is of the wrong type",
         "Send `Content-Type: application/json`, in UTF-8 and without Content-Encoding."),
    Kind("throttled", 429, "Too many requests",
         "Wait for as many seconds as the header Retry-After says."),
    Kind("internal-error", 500, "Something failed on our side",
         "The log has the cause under `error_id`."),
    Kind("unavailable", 503, "The platform is unavailable at the moment",
         "Nothing was done. Repeat after as many seconds as the header Retry-After says."),
    Kind("outcome-unknown", 503, "It may or may not have happened",
         "Repeat with the same idempotency key: it is done once, and the answer has its id. "
         "Without a key, look whether it was done before you repeat it."),
)  # fmt: skip
KINDS: dict[str, Kind] = {kind.slug: kind for kind in _ALL}
# The general kind of each status stands first in _ALL.
BY_STATUS: dict[int, Kind] = {kind.status: kind for kind in reversed(_ALL)}


def unavailable(detail: str, more: Mapping[str, Any] | None = None) -> Problem:
    """A server does not answer, or the platform is full: nothing was done."""
    retry_after = {"Retry-After": str(RETRY_AFTER_SECONDS)}
    return Problem(KINDS["unavailable"], detail, retry_after, more or {})
