"""Repeat transactions that failed, and tell what is certain after an error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from django.db import connections
from django.db.utils import Error, OperationalError, ProgrammingError

from msgplatform.core import logging
from msgplatform.core.errors import OutcomeUnknown
from msgplatform.core.rates.backoff import Backoff

log = logging.get(__name__)

R = TypeVar("R")

LOCK_WAIT_TIMEOUT, DEADLOCK, SERVER_GONE, CONNECTION_LOST = 1205, 1213, 2006, 2013
# A node of Galera without a quorum: it refuses every statement but those that ask no table, and it
# may have lost the quorum during COMMIT.
NO_QUORUM, ERROR_DURING_COMMIT = 1047, 1180
# A note of an error that came while connecting or inside a transaction (`mysql/base.py`).
BEFORE_COMMIT = "The transaction had not come to its COMMIT: nothing of it is stored."
# The connection broke; if that was during COMMIT, the transaction may have been stored or not.
LOST = frozenset({SERVER_GONE, CONNECTION_LOST})
REPEATABLE = LOST | {LOCK_WAIT_TIMEOUT, DEADLOCK}
ATTEMPTS = 5
# No room on the disk, for a temporary table or for the table itself: the statement did nothing.
_DISK_FULL = frozenset({1021, 1114})
# A server that is not there, stops, has no connection left, is read only, or ended the statement:
# any statement may fail, and may succeed later. A full disk is different: a person has to make
# room. Any other error comes from the statement.
_AWAY = REPEATABLE | {
    *(1040, 1053, 1203, 1290, 1317, 1836, 1927, 1969, 2002, 2003, 2005),
    *(NO_QUORUM, ERROR_DURING_COMMIT),
}
_MAY_BE_OF_COMMIT = LOST | {NO_QUORUM, ERROR_DURING_COMMIT}
_AT_HANDSHAKE = " at '"
# MySQL's errors after which nothing of the transaction is stored: too many connections, no
# connection, no privilege, lock timeout, deadlock, read only, a trigger whose user does not exist,
# no room. Any other error may have come during COMMIT.
_NOTHING_HAPPENED = _DISK_FULL | {
    *(1040, 1044, 1045, 1049, 1142, 1143, 1205, 1213, 1290, 1449, 2002, 2003, 2005)
}
_SQLITE_NOTHING_HAPPENED = (
    "database is locked",
    "unable to open database file",
    "database or disk is full",
)


class Locked(Exception):
    """Another transaction, perhaps of a frozen process, holds the lock that is needed."""


def is_in_transaction(using: str = "default") -> bool:
    """True if the caller has a transaction open; the one around a Django TestCase does not count.

    Opens no connection.
    """
    blocks = connections[using].atomic_blocks
    # `atomic(durable=True)` asks the same question, by the same attribute.
    return bool(blocks) and not getattr(blocks[-1], "_from_testcase", False)


def retrying(work: Callable[[], R], using: str = "default") -> R:
    """Call `work()`, once more after a lock timeout, a deadlock or a lost connection (MySQL only).

    `work` is a whole transaction that can be repeated: if the connection was lost during COMMIT,
    the first attempt may have been stored. If no later attempt succeeds, OutcomeUnknown is raised
    if the outcome of any of them is not known, else the error of the last attempt. Inside a
    transaction of the caller nothing is repeated, because the server rolled back more than `work`.
    """
    connection = connections[using]
    if connection.in_atomic_block:
        return work()
    pauses = Backoff(first=0.02, factor=2.5, cap=1.0, jitter=0.5)
    attempt, is_unknown = 1, False
    while True:
        try:
            return work()
        except Error as error:
            code = error_code(error)
            is_unknown = is_unknown or _is_unknown(error)
            if code not in REPEATABLE or attempt == ATTEMPTS:
                if is_unknown:
                    raise OutcomeUnknown(f"the connection was lost, then: {error}") from error
                raise
            log.info("database_repeat", code=code, attempt=attempt, database=using)
            if code in LOST:
                connection.close()
        attempt += 1
        time.sleep(pauses.next())


@contextmanager
def without_patience() -> Iterator[None]:
    """Raise Locked when the database has waited for a lock too long: for a caller that has other
    work, and comes back to this one later."""
    try:
        yield
    except OperationalError as error:
        if error_code(error) != LOCK_WAIT_TIMEOUT:
            raise
        raise Locked(str(error)) from error


def nothing_happened(error: Error) -> bool:
    """True if it is certain that the transaction which raised this has changed nothing."""
    if _is_unknown(error):
        return False
    if isinstance(error, ProgrammingError) or error_code(error) in _NOTHING_HAPPENED:
        return True
    return _is_certain(error) or str(error) in _SQLITE_NOTHING_HAPPENED


def is_away(error: Error) -> bool:
    """True if the server was away or busy, so that a repeat may succeed with nothing changed."""
    return error_code(error) in _AWAY or str(error) in _SQLITE_NOTHING_HAPPENED


def _is_unknown(error: BaseException | None) -> bool:
    """True if the server may have stored the transaction, or not: the connection was lost, or the
    quorum, and that may have been during COMMIT. At the end of `atomic` Django handles the loss by
    connecting again; if that fails too, the loss is only in the error's context."""
    while error is not None:
        is_of_commit = isinstance(error, Error) and error_code(error) in _MAY_BE_OF_COMMIT
        if is_of_commit and not _is_certain(error):
            return True
        error = error.__context__
    return False


def _is_certain(error: BaseException) -> bool:
    """True if the error came before COMMIT, or while connecting ("Lost connection to server at
    'handshake: …'": a proxy without a server)."""
    is_of_handshake = error_code(error) == CONNECTION_LOST and _AT_HANDSHAKE in str(error)
    return is_of_handshake or BEFORE_COMMIT in getattr(error, "__notes__", ())


def error_code(error: BaseException) -> int:
    """The MySQL error number, or 0 (SQLite's errors have none)."""
    code = error.args[0] if error.args else 0
    return code if isinstance(code, int) else 0
