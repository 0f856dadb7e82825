"""Exceptions as problem+json (RFC 9457): a stable `type`, and a `detail` that says what to change.

`handle` is DRF's exception handler. Exceptions that it does not know are left to Django, which
calls `error_pages.server_error`: every unexpected exception is handled there.
"""

import math
from collections.abc import Mapping
from functools import singledispatch
from http import HTTPStatus
from typing import Any

from django.core import exceptions as django_errors
from django.db.utils import DataError, InterfaceError, OperationalError
from django.http import Http404, HttpResponse, UnreadablePostError
from rest_framework import exceptions as drf
from rest_framework.permissions import SAFE_METHODS

from msgplatform.core import errors, logging
from msgplatform.core.connections import RedisError
from msgplatform.core.data import transactions
from msgplatform.doors.api.problems.problem import (
    BY_STATUS,
    KINDS,
    BodyTooLarge,
    Kind,
    MissingScope,
    Problem,
    unavailable,
)
from msgplatform.setup.refusals import LimitedKey, field_errors, flat_errors

log = logging.get(__name__)


def handle(exc: Exception, context: Mapping[str, Any]) -> HttpResponse | None:
    """DRF's EXCEPTION_HANDLER; None for an unexpected error (see `error_pages.server_error`)."""
    problem = describe(exc, context.get("view"))
    if problem is None:
        return None
    # Errors of callers are not logged: one caller could fill the log.
    if problem.kind.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        request = context.get("request")
        log.warning(
            "request_unavailable",
            kind=problem.kind.slug,
            why=f"{type(exc).__name__}: {exc}",
            method=getattr(request, "method", ""),
            path=getattr(request, "path", ""),
        )
    return problem.response()


@singledispatch
def describe(exc: Exception, view: Any) -> Problem | None:
    """The problem for this exception, or None for an unexpected one."""
    return None


# Exceptions whose own words are the detail → the kind.
for _type, _slug in {
    errors.LeaseLost: "lease-lost", errors.NotNow: "not-now", LimitedKey: "limited-key",
    django_errors.PermissionDenied: "forbidden", drf.ParseError: "malformed-body",
}.items():  # fmt: skip
    describe.register(
        _type, lambda exc, view, kind=KINDS[_slug]: Problem(kind, str(exc) or kind.help)
    )


@describe.register
def _(exc: drf.APIException, view: Any) -> Problem:
    kind = BY_STATUS.get(exc.status_code)
    if kind is None:  # a library raised a status that has no kind
        kind = Kind("other", exc.status_code, HTTPStatus(exc.status_code).phrase, "")
    return Problem(kind, "; ".join(error["message"] for error in flat_errors(exc.detail)))


@describe.register(drf.ValidationError)
@describe.register(django_errors.ValidationError)
@describe.register(errors.InvalidInput)
def _(exc: Exception, view: Any) -> Problem:
    faults = field_errors(exc)
    # People read `detail`: the first errors are enough there. `errors` has all of them.
    first_errors = "; ".join(
        f"{fault['field']}: {fault['message']}" if fault["field"] else fault["message"]
        for fault in faults[:3]
    )
    remark = f" (and {len(faults) - 3} more)" if len(faults) > 3 else ""
    return Problem(KINDS["invalid-input"], first_errors + remark, {}, {"errors": faults})


@describe.register
def _(exc: DataError, view: Any) -> Problem | None:
    return describe(transactions.refused_value(exc), view)


@describe.register
def _(exc: errors.Permanent, view: Any) -> Problem:
    return Problem(KINDS["invalid-input"], str(exc) or (type(exc).__doc__ or ""))


@describe.register
def _(exc: errors.Conflict, view: Any) -> Problem:
    more = {"id": exc.first_id} if exc.first_id else {}
    return Problem(KINDS["conflict"], str(exc), more=more)


@describe.register
def _(exc: errors.Changed, view: Any) -> Problem:
    return Problem(KINDS["changed"], str(exc), more={"differences": exc.differences})


@describe.register(OperationalError)
@describe.register(InterfaceError)
def _(exc: OperationalError | InterfaceError, view: Any) -> Problem:
    # Nothing changed if the request only reads or if the connect failed.
    request = getattr(view, "request", None)
    only_reads = request is not None and request.method in SAFE_METHODS
    if only_reads or transactions.nothing_happened(exc):
        return _unavailable(exc, view)
    return _unknown(errors.OutcomeUnknown(), view)


@describe.register(errors.Temporary)
@describe.register(RedisError)
def _unavailable(exc: Exception, view: Any) -> Problem:
    reason = str(exc) if isinstance(exc, errors.Temporary) else ""
    return unavailable(reason or "The database or Redis does not answer. Repeat the request later.")


@describe.register
def _(exc: errors.AlreadyListening, view: Any) -> Problem:
    wait = str(max(1, math.ceil(exc.seconds)))
    return Problem(KINDS["already-listening"], str(exc), {"Retry-After": wait})


@describe.register
def _unknown(exc: errors.OutcomeUnknown, view: Any) -> Problem:
    return Problem(
        KINDS["outcome-unknown"],
        "It may or may not have happened: repeat with the same idempotency key. "
        "Without a key, look whether it was done before you repeat it.",
        {"Retry-After": "1"},
    )


@describe.register(drf.NotAuthenticated)
@describe.register(drf.AuthenticationFailed)
def _(exc: drf.APIException, view: Any) -> Problem:
    header = getattr(exc, "auth_header", "")
    return Problem(
        KINDS["unauthenticated"],
        "Send a valid API key: Authorization: Bearer mp_…",
        {"WWW-Authenticate": header} if header else {},
    )


@describe.register
def _(exc: MissingScope, view: Any) -> Problem:
    challenge = f'Bearer realm="msgplatform", error="insufficient_scope", scope="{exc.scope}"'
    return Problem(
        KINDS["missing-scope"],
        str(exc.detail),
        {"WWW-Authenticate": challenge},
        {"required_scope": exc.scope},
    )


@describe.register
def _(exc: Http404, view: Any) -> Problem:
    # Django's own message names a model, which callers do not know.
    is_from_model = isinstance(exc.__context__, django_errors.ObjectDoesNotExist)
    detail = "" if is_from_model else str(exc)
    return Problem(KINDS["not-found"], detail or "Nothing has this id.")


@describe.register
def _(exc: drf.MethodNotAllowed, view: Any) -> Problem:
    methods = getattr(view, "allowed_methods", [])
    names = ", ".join(method for method in methods if method != "OPTIONS")
    return Problem(KINDS["method-not-allowed"], f"Use {names}." if names else str(exc.detail))


@describe.register
def _(exc: drf.Throttled, view: Any) -> Problem:
    wait = max(1, math.ceil(getattr(exc, "wait", None) or 1))
    detail = f"Repeat after {wait} second{'' if wait == 1 else 's'}."
    return Problem(KINDS["throttled"], detail, {"Retry-After": str(wait)})


@describe.register
def _(exc: UnreadablePostError, view: Any) -> Problem:
    return Problem(KINDS["malformed-body"], "The connection ended before the body did.")


@describe.register
def _(exc: drf.UnsupportedMediaType, view: Any) -> Problem:
    return Problem(
        KINDS["unsupported-media-type"], f"{exc.detail} Send Content-Type: application/json."
    )


@describe.register
def _(exc: BodyTooLarge, view: Any) -> Problem:
    return Problem(KINDS["body-too-large"], str(exc.detail), {}, {"max_bytes": exc.max_bytes})


@describe.register
def _(exc: django_errors.RequestDataTooBig, view: Any) -> Problem:
    return Problem(KINDS["body-too-large"], "Send several smaller requests.")
