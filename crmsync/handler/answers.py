"""The answers that delivery has for the records of an order; `marks` writes them."""

from collections import Counter
from typing import TypeGuard

import msgspec

from crmsync.adapters.base import CRMAdapter
from crmsync.adapters.outcomes import Auth, Outcome, Retry, Throttled, Unknown
from crmsync.orders import Entry
from msgplatform.core import logging

log = logging.get(__name__)


class Fault(msgspec.Struct, frozen=True):
    """The adapter raised an error with this record: a fault of the platform or of the adapter."""

    message: str


class Unsent(msgspec.Struct, frozen=True):
    """The record was not sent; it is due again in `after` seconds."""

    after: float = 0.0


class Answer(msgspec.Struct):
    """The outcome of one entry. `remote_id` is the record's id in the CRM, '' while not known.

    A failure that `is_free` costs no attempt: the call was the breaker's probe while the CRM was
    down, and only chance chose this record for it.
    """

    entry: Entry
    outcome: Outcome | Fault | Unsent
    milliseconds: int = 0
    remote_id: str = ""
    is_free: bool = False


class FailedCall(msgspec.Struct, frozen=True):
    """A call that failed as a whole, for the exception log."""

    kind: str
    message: str
    operation: int
    records: int


class DeliveryResult(msgspec.Struct):
    """The result of delivering one order. `counts` has calls and call_ms. `is_plain`: no record was
    looked up or in conflict, so that each entry has its row's remote id."""

    answers: list[Answer] = msgspec.field(default_factory=list)
    failed_calls: list[FailedCall] = msgspec.field(default_factory=list)
    counts: Counter[str] = msgspec.field(default_factory=Counter)
    is_plain: bool = True


def concerns_all(outcome: Outcome) -> TypeGuard[Auth | Throttled]:
    """True if the other records of the order cannot be stored now either."""
    return isinstance(outcome, Throttled) or (isinstance(outcome, Auth) and not outcome.of_record)


def passes_test(adapter: CRMAdapter) -> bool:
    """True if the adapter's test of its CRM succeeds."""
    try:
        return adapter.check().kind == "ok"
    except Exception as error:  # noqa: BLE001 - an adapter may be anybody's
        log.warning("crm_not_tested", error=type(error).__name__)
        return False


def kind_of(outcome: Outcome) -> tuple[str, str]:
    """Kind and message of a call that failed as a whole, for the exception log."""
    match outcome:
        case Auth(message=text):
            return "auth", text
        case Throttled(after=seconds):
            return "throttled", f"The CRM wants no call for {seconds:.0f} s."
        case Unknown(message=text):
            return "unknown", text
        case Retry(why=text):
            return ("unavailable" if text.startswith("HTTP") else "network"), text
    return "unknown", str(outcome)
