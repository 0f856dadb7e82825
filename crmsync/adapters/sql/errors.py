"""The meaning of a database's errors for the records of a batch."""

from __future__ import annotations

import re

from django.db import DatabaseError, DataError, IntegrityError, InterfaceError, OperationalError

from crmsync.adapters.outcomes import Auth, Invalid, Outcome, Refused, Retry
from msgplatform.core.data import transactions
from msgplatform.core.data.mysql import error_codes

LOST = error_codes.LOST | {2055}
# Nothing was sent: cannot connect, unknown host, too many connections.
_UNREACHABLE = frozenset({2002, 2003, 2005, 2026, 1040, 1129, 1203})
_CREDENTIALS = frozenset({1044, 1045, 1130, 1142, 1143, 1227, 1251, 1698, 1820, 1862, 2059, 4151})
_SETUP = frozenset({1049, 1146})  # no such database, no such table
# The statement is right and comes too early: locks, a full disk, a restart, read-only for a while.
_LATER = frozenset({1021, 1053, 1114, 1205, 1213, 1226, 1290, 1317, 1836, 1927, 3024})
_VALUES = error_codes.OF_VALUES | {
    *(1048, 1054, 1062, 1169, 1216, 1217, 1364, 1451, 1452, 1586, 3819, 4025)
}
_SQLITE_COLUMN = re.compile(
    r"(?:constraint failed: [^.\s]+\.|no such column: |has no column named )(\w+)"
)
# The minimum wait for a server that cannot be reached.
_BUSY_SECONDS = 5.0


def verdict(error: DatabaseError, size: int) -> Outcome:
    """The outcome of each of `size` records whose statement was rolled back with this error."""
    code, text = transactions.error_code(error), message(error)
    if is_credentials(error) or is_setup(error):
        return Auth(text)
    is_sqlite = not code and isinstance(error, OperationalError | InterfaceError)
    is_later = is_sqlite and any(word in text for word in ("locked", "unable to open", "disk"))
    if code in LOST or code in _UNREACHABLE or code in _LATER or is_later:
        return Retry(_BUSY_SECONDS if code in _UNREACHABLE else 0.0, text)
    if code in _VALUES or isinstance(error, DataError | IntegrityError) or column(text):
        return Invalid(column(text), text) if size == 1 else Refused(text)
    return Retry(0.0, text)


def is_credentials(error: DatabaseError) -> bool:
    return transactions.error_code(error) in _CREDENTIALS or "readonly database" in str(error)


def is_setup(error: DatabaseError) -> bool:
    text = str(error)
    return (
        transactions.error_code(error) in _SETUP
        or "no such table" in text
        or "empty pragma" in text
        or "file is not a database" in text
    )


def is_out_of_range(error: DatabaseError) -> bool:
    return transactions.error_code(error) == 1264


def is_unknown_column(error: DatabaseError) -> bool:
    text = str(error)
    return (
        transactions.error_code(error) == 1054
        or "no such column" in text
        or "no column named" in text
    )


def column(text: str) -> str:
    """The column at fault by the message, '' when it names none."""
    if column_match := _SQLITE_COLUMN.search(text):
        return column_match.group(1)
    return error_codes.column(text)


def message(error: BaseException) -> str:
    """The server's own sentence."""
    parts = [part for part in error.args if isinstance(part, str)]
    return parts[-1] if parts else type(error).__name__
