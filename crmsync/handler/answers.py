"""What became of each record of an order, as delivery hands it to the marks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from crmsync.adapters.outcomes import Auth, Outcome, Retry, Throttled, Unknown
from crmsync.orders import Entry


@dataclass(frozen=True, slots=True)
class Fault:
    """The adapter raised an error with this record: our own fault, or its author's."""

    message: str


@dataclass(frozen=True, slots=True)
class Unsent:
    """The record was not sent; it is due again in `after` seconds."""

    after: float = 0.0


@dataclass(slots=True)
class Answer:
    """What became of one entry. `remote_id` is the record's id in the CRM, '' while not known.

    A failure that `is_free` costs no attempt: it was the breaker's probe, and only that record
    happened to be sent while the CRM was down.
    """

    entry: Entry
    outcome: Outcome | Fault | Unsent
    milliseconds: int = 0
    remote_id: str = ""
    is_free: bool = False


@dataclass(frozen=True, slots=True)
class FailedCall:
    """A call that failed as a whole, for the exception log."""

    kind: str
    message: str
    operation: int
    records: int


@dataclass(slots=True)
class Delivered:
    """What delivering one order has come to."""

    answers: list[Answer] = field(default_factory=list)
    failed_calls: list[FailedCall] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)  # calls, call_ms


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
