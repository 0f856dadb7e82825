"""The meaning of a database's errors for the records of a batch."""

from __future__ import annotations

from django.db import DatabaseError, DataError, IntegrityError

from crmsync.adapters.outcomes import Auth, Invalid, Outcome, Refused, Retry
from msgplatform.core.data import engines
from msgplatform.core.data.engines.contract import Fault

_SETUP = frozenset({Fault.NO_DATABASE, Fault.NO_TABLE, Fault.DAMAGED})
_LATER = frozenset({Fault.LOST, Fault.UNREACHABLE, Fault.LATER, Fault.NO_FILE})
_VALUES = frozenset({Fault.VALUE, Fault.OUT_OF_RANGE, Fault.NO_COLUMN})
# The minimum wait for a server that cannot be reached.
_BUSY_SECONDS = 5.0


def verdict(error: DatabaseError, size: int) -> Outcome:
    """The outcome of each of `size` records whose statement was rolled back with this error."""
    fault, text = engines.fault(error), message(error)
    if is_credentials(error) or is_setup(error):
        return Auth(text)
    if fault in _LATER:
        return Retry(_BUSY_SECONDS if fault is Fault.UNREACHABLE else 0.0, text)
    if fault in _VALUES or isinstance(error, DataError | IntegrityError) or column(text):
        return Invalid(column(text), text) if size == 1 else Refused(text)
    # A trigger may raise any number. The error may belong to one record, which is then tried alone;
    # the other records are stored.
    return Refused(text) if fault is Fault.OTHER and size > 1 else Retry(0.0, text)


def is_credentials(error: DatabaseError) -> bool:
    return engines.fault(error) is Fault.REFUSED


def is_setup(error: DatabaseError) -> bool:
    return engines.fault(error) in _SETUP


def is_lost(error: DatabaseError) -> bool:
    return engines.fault(error) is Fault.LOST


def is_out_of_range(error: DatabaseError) -> bool:
    return engines.fault(error) is Fault.OUT_OF_RANGE


def is_unknown_column(error: DatabaseError) -> bool:
    return engines.fault(error) is Fault.NO_COLUMN


def column(text: str) -> str:
    """The column that the message names, '' if it names none."""
    return engines.column_of(text)


def message(error: BaseException) -> str:
    """The server's own sentence."""
    parts = [part for part in error.args if isinstance(part, str)]
    return parts[-1] if parts else type(error).__name__
