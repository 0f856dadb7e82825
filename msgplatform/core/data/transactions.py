"""Repeat failed transactions, and tell the certain outcome after an error."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from typing import ParamSpec, TypeVar

from django.db import connections, transaction
from django.db.utils import DataError, Error, OperationalError, ProgrammingError

from msgplatform.core import logging
from msgplatform.core.data import engines
from msgplatform.core.data.engines import sqlite
from msgplatform.core.data.engines.mysql import error_codes
from msgplatform.core.errors import InvalidInput, OutcomeUnknown
from msgplatform.core.rates.backoff import Backoff

log = logging.get(__name__)

P = ParamSpec("P")
R = TypeVar("R")

# A note on an error while connecting or inside a transaction (`engines/mysql/base.py`).
BEFORE_COMMIT = "The transaction had not come to its COMMIT: nothing of it is stored."
ATTEMPTS = 5
_AT_HANDSHAKE = " at '"
# The lock errors that `retrying` does not repeat in this thread.
_unrepeated_codes: ContextVar[frozenset[int]] = ContextVar("unrepeated", default=frozenset())


class Locked(Exception):
    """Another transaction, perhaps of a frozen process, holds a needed lock."""


def is_in_transaction(using: str = "default") -> bool:
    """True if the caller has an open transaction, apart from that of a Django TestCase.

    Opens no connection.
    """
    blocks = connections[using].atomic_blocks
    # `atomic(durable=True)` asks the same question, by the same attribute.
    return bool(blocks) and not getattr(blocks[-1], "_from_testcase", False)


def retrying(work: Callable[[], R], using: str = "default") -> R:
    """Call `work()`, again after a lock timeout, a deadlock or a lost connection (MySQL only).

    `work` is a whole transaction that can be repeated: if the connection was lost during COMMIT,
    the first attempt may have been stored. If no attempt succeeds, OutcomeUnknown is raised if the
    outcome of any attempt is unknown, else the error of the last attempt. Inside a transaction of
    the caller `work` is not repeated, because the server rolled back more than `work`.
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
            is_last = attempt == ATTEMPTS or code in _unrepeated_codes.get()
            if code not in error_codes.REPEATABLE or is_last:
                if is_unknown:
                    raise OutcomeUnknown(f"the connection was lost, then: {error}") from error
                raise
            log.info("database_repeat", code=code, attempt=attempt, database=using)
            if code in error_codes.LOST:
                connection.close()
        attempt += 1
        time.sleep(pauses.next())


def repeatable(work: Callable[P, R]) -> Callable[P, R]:
    """The function as one transaction of the main database, which `retrying` repeats."""

    @wraps(work)
    def repeat(*args: P.args, **kwargs: P.kwargs) -> R:
        return retrying(partial(transaction.atomic(work), *args, **kwargs))

    return repeat


@contextmanager
def waiting_once() -> Iterator[None]:
    """`retrying` repeats nothing that has waited for a lock, for a caller that looks for the locked
    row then."""
    token = _unrepeated_codes.set(_unrepeated_codes.get() | {error_codes.LOCK_WAIT_TIMEOUT})
    try:
        yield
    finally:
        _unrepeated_codes.reset(token)


@contextmanager
def hasty(using: str = "default") -> Iterator[None]:
    """`retrying` repeats no lock error, and a lock is waited for a second, for a caller that tries
    one part of its rows after another."""
    token = _unrepeated_codes.set(error_codes.OF_LOCKS)
    try:
        with engines.of(using).lock_wait(connections[using], 1):
            yield
    finally:
        _unrepeated_codes.reset(token)


@contextmanager
def without_patience() -> Iterator[None]:
    """Raise Locked if the database has waited too long for a lock, for a caller that does other
    work first and comes back later."""
    try:
        yield
    except OperationalError as error:
        if error_code(error) != error_codes.LOCK_WAIT_TIMEOUT:
            raise
        raise Locked(str(error)) from error


def nothing_happened(error: Error) -> bool:
    """True if the transaction that raised this error has certainly changed nothing."""
    if _is_unknown(error):
        return False
    if isinstance(error, ProgrammingError) or error_code(error) in error_codes.NOTHING_HAPPENED:
        return True
    return _is_certain(error) or str(error) in sqlite.NOTHING_HAPPENED


def is_away(error: Error) -> bool:
    """True if the server was away or busy, so that the same work may succeed later."""
    return error_code(error) in error_codes.AWAY or str(error) in sqlite.NOTHING_HAPPENED


def refused_value(error: DataError) -> InvalidInput:
    """The caller's error if the database refuses a value that passed every check: the column has
    another character set, length or range than the platform's own."""
    column = error_codes.column(str(error))
    log.warning("value_refused", code=error_code(error), column=column)
    return InvalidInput(
        "The database does not take this value: it has a character that the column cannot hold, "
        "or it is too long or too large.",
        column,
    )


def is_answer(code: int) -> bool:
    """True if a server has answered a statement with this error number. Numbers of the client, and
    of a broken connection, mean that there was no answer."""
    return code not in error_codes.LOST | {0} and code not in error_codes.OF_CLIENT


def is_of_server(error: BaseException) -> bool:
    """True if the server's state is known to be the cause: no value, and no unknown number."""
    code = error_code(error)
    return not code or code in error_codes.OF_SERVER


def is_of_lock(error: BaseException) -> bool:
    """True if another transaction has the lock, or has changed the row meanwhile."""
    return error_code(error) in error_codes.OF_LOCKS


def has_no_quorum(error: BaseException) -> bool:
    """True if a node of a cluster refuses work because it sees too few other nodes."""
    return error_code(error) == error_codes.NO_QUORUM


def _is_unknown(error: BaseException | None) -> bool:
    """True if it is unknown whether the server stored the transaction: the connection or the quorum
    may have been lost during COMMIT. At the end of `atomic` Django connects again after a loss; if
    that fails too, the loss is only in the error's context."""
    while error is not None:
        code = error_code(error) if isinstance(error, Error) else 0
        if code in error_codes.MAY_BE_OF_COMMIT and not _is_certain(error):
            return True
        error = error.__context__
    return False


def _is_certain(error: BaseException) -> bool:
    """True if the error came before COMMIT, or while connecting ("Lost connection to server at
    'handshake: …'": a proxy without a server)."""
    if error_code(error) == error_codes.CONNECTION_LOST and _AT_HANDSHAKE in str(error):
        return True
    return BEFORE_COMMIT in getattr(error, "__notes__", ())


def error_code(error: BaseException) -> int:
    """The MySQL error number, or 0 (SQLite's errors have none)."""
    code = error.args[0] if error.args else 0
    return code if isinstance(code, int) else 0
