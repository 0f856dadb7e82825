"""What Tryton's errors mean for the records of a call."""

from __future__ import annotations

from crmsync.adapters.outcomes import Auth, Invalid, Outcome, Refused, Retry, Unknown

# What a person has to change in the record; other errors are faults of the server's own.
_OF_RECORD = ("UserError", "UserWarning")
_LATER = ("ConcurrencyException", "DatabaseOperationalError", "DatabaseTimeoutError")


class RpcError(Exception):
    """The server answered a call with an error; `kind` is the name of its exception."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message or kind)
        self.kind = kind


class NotAnswered(Exception):
    """A call was not answered as it should be; `outcome` says what that means for its records."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(str(outcome))
        self.outcome = outcome


def meaning(error: NotAnswered | RpcError, size: int, is_change: bool) -> Outcome:
    """What an error means for `size` records; `sent`: the call would have changed them."""
    if isinstance(error, NotAnswered):
        outcome = error.outcome
        # Looking for the keys changed nothing.
        if isinstance(outcome, Unknown) and not is_change:
            return Retry(0.0, outcome.message)
        return outcome
    text = f"{error.kind}: {error}" if error.kind not in _OF_RECORD else str(error)
    if error.kind in _LATER:
        return Retry(0.0, text)
    if not is_change:
        return Auth(text)  # the model or the key field does not exist, or may not be read
    return Refused(text) if size > 1 else Invalid("", text)
