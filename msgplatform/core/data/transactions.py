"""Repeat transactions that failed, and tell what is certain after an error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from django.db import connections
from django.db.utils import DataError, Error, OperationalError, ProgrammingError

from msgplatform.core import logging
from msgplatform.core.data.engines import sqlite
from msgplatform.core.data.engines.mysql import error_codes
from msgplatform.core.errors import InvalidInput, OutcomeUnknown
from msgplatform.core.rates.backoff import Backoff

log = logging.get(__name__)

R = TypeVar("R")

# A note of an error that came while connecting or inside a transaction (`engines/mysql/base.py`).
BEFORE_COMMIT = "The transaction had not come to its COMMIT: nothing of it is stored."
ATTEMPTS = 5
_AT_HANDSHAKE = " at '"


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
            if code not in error_codes.REPEATABLE or attempt == ATTEMPTS:
                if is_unknown:
                    raise OutcomeUnknown(f"the connection was lost, then: {error}") from error
                raise
            log.info("database_repeat", code=code, attempt=attempt, database=using)
            if code in error_codes.LOST:
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
        if error_code(error) != error_codes.LOCK_WAIT_TIMEOUT:
            raise
        raise Locked(str(error)) from error


def nothing_happened(error: Error) -> bool:
    """True if it is certain that the transaction which raised this has changed nothing."""
    if _is_unknown(error):
        return False
    if isinstance(error, ProgrammingError) or error_code(error) in error_codes.NOTHING_HAPPENED:
        return True
    return _is_certain(error) or str(error) in sqlite.NOTHING_HAPPENED


def is_away(error: Error) -> bool:
    """True if the server was away or busy, so that a repeat may succeed with nothing changed."""
    return error_code(error) in error_codes.AWAY or str(error) in sqlite.NOTHING_HAPPENED


def refused_value(error: DataError) -> InvalidInput:
    """The caller's error when the database does not take a value that every check has let through:
    the column has another character set, length or range than the platform's own."""
    column = error_codes.column(str(error))
    log.warning("value_refused", code=error_code(error), column=column)
    return InvalidInput(
        "The database does not take this value: it has a character that the column cannot hold, "
        "or it is too long or too large.",
        column,
    )


def is_answer(code: int) -> bool:
    """True if a server has answered a statement with this error number; the client's own numbers,
    and those of a connection that broke, say that there was no answer."""
    return code not in error_codes.LOST | {0} and code not in error_codes.OF_CLIENT


def is_of_server(error: BaseException) -> bool:
    """True if the server's state is to blame, as far as anybody has said: not a value, and no
    number that nobody knows."""
    code = error_code(error)
    return not code or code in error_codes.OF_SERVER


def is_of_lock(error: BaseException) -> bool:
    """True if another transaction has the lock, or has changed the row meanwhile."""
    return error_code(error) in error_codes.OF_LOCKS


def has_no_quorum(error: BaseException) -> bool:
    """True if a node of a cluster refuses work, since it sees too few of the others."""
    return error_code(error) == error_codes.NO_QUORUM


def _is_unknown(error: BaseException | None) -> bool:
    """True if the server may have stored the transaction, or not: the connection was lost, or the
    quorum, and that may have been during COMMIT. At the end of `atomic` Django handles the loss by
    connecting again; if that fails too, the loss is only in the error's context."""
    while error is not None:
        is_of_commit = (
            isinstance(error, Error) and error_code(error) in error_codes.MAY_BE_OF_COMMIT
        )
        if is_of_commit and not _is_certain(error):
            return True
        error = error.__context__
    return False


def _is_certain(error: BaseException) -> bool:
    """True if the error came before COMMIT, or while connecting ("Lost connection to server at
    'handshake: …'": a proxy without a server)."""
    is_of_handshake = error_code(error) == error_codes.CONNECTION_LOST and _AT_HANDSHAKE in str(
        error
    )
    return is_of_handshake or BEFORE_COMMIT in getattr(error, "__notes__", ())


def error_code(error: BaseException) -> int:
    """The MySQL error number, or 0 (SQLite's errors have none)."""
    code = error.args[0] if error.args else 0
    return code if isinstance(code, int) else 0
