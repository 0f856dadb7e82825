"""The faults of /rpc/: codes that never change, each with a sentence.

Negative codes are those that XML-RPC servers agreed on, the others HTTP's for the same reason.
"""

from __future__ import annotations

from typing import Final

from django.db.utils import DataError, InterfaceError, OperationalError
from rest_framework import exceptions as drf

from gateway.intake.request import LimitReached
from msgplatform.core import errors
from msgplatform.core.connections import RedisError
from msgplatform.core.data import transactions
from msgplatform.doors.api.problems.problem import BodyTooLarge, MissingScope

# The XML-RPC specification extension "Fault Code Interoperability".
NOT_XML: Final = -32700
NO_METHOD: Final = -32601
WRONG_PARAMETERS: Final = -32602
INTERNAL: Final = -32603
# HTTP's status for the same over REST.
INVALID: Final = 400
UNAUTHENTICATED: Final = 401
MISSING_SCOPE: Final = 403
CONFLICT: Final = 409
TOO_LARGE: Final = 413
THROTTLED: Final = 429
UNAVAILABLE: Final = 503
OUTCOME_UNKNOWN: Final = 504


class Fault(Exception):
    """An error whose code and text the caller gets unchanged."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


def of(error: Exception) -> Fault | None:
    """The fault that the caller gets for an error; None for an unexpected error."""
    match error:
        case Fault():
            return error
        # Before InvalidInput, its base class: in a batch a limit is one item's fault.
        case LimitReached() | drf.Throttled():
            what = str(error) if isinstance(error, LimitReached) else "Too many calls"
            seconds = max(1, int(getattr(error, "wait", None) or 1))
            return Fault(THROTTLED, f"{what}: repeat after {seconds} seconds.")
        case errors.InvalidInput():
            field = f"{error.field}: " if error.field else ""
            return Fault(INVALID, f"{field}{error}")
        case DataError():
            return of(transactions.refused_value(error))
        case errors.Conflict():
            return Fault(CONFLICT, str(error))
        case MissingScope():
            return Fault(MISSING_SCOPE, str(error.detail))
        case BodyTooLarge():
            return Fault(TOO_LARGE, str(error.detail))
        case drf.ParseError() | drf.UnsupportedMediaType():
            return Fault(NOT_XML, str(error.detail))
        # Before Temporary: the request may be stored, so that its repetition needs its key.
        case errors.OutcomeUnknown():
            return Fault(
                OUTCOME_UNKNOWN,
                "It may or may not have happened: repeat with the same idempotency key.",
            )
        case errors.Temporary() | RedisError() | OperationalError() | InterfaceError():
            return Fault(UNAVAILABLE, "The platform is unavailable: repeat the call later.")
    return None
