"""Raw SQL that SQLite and MariaDB spell differently, and repeating transactions that failed.

Statements here are written for a cursor with parameters: a literal % is doubled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

from django.db import connections, transaction
from django.db.models import QuerySet
from django.db.utils import Error, OperationalError, ProgrammingError

from msgplatform.core import logging
from msgplatform.core.data import mysql_values
from msgplatform.core.errors import OutcomeUnknown
from msgplatform.core.rates.backoff import Backoff

log = logging.get(__name__)

R = TypeVar("R")
Row = Sequence[Any]

LOCK_WAIT_TIMEOUT, DEADLOCK, SERVER_GONE, CONNECTION_LOST = 1205, 1213, 2006, 2013
# The connection broke; if that was during COMMIT, nobody knows whether it happened.
LOST = frozenset({SERVER_GONE, CONNECTION_LOST})
REPEATABLE = LOST | {LOCK_WAIT_TIMEOUT, DEADLOCK}
ATTEMPTS = 5
# MySQL's errors after which nothing of the transaction is stored: too many connections, no
# connection, lock timeout, deadlock, read only. Any other error may have come during COMMIT.
_NOTHING_HAPPENED = frozenset({1040, 1044, 1045, 1049, 1205, 1213, 1290, 2002, 2003, 2005})
_SQLITE_NOTHING_HAPPENED = ("database is locked", "unable to open database file")


class Locked(Exception):
    """Another transaction, perhaps of a frozen process, holds the lock that is needed."""


# -- transactions --------------------------------------------------------------------------------
def in_transaction(using: str = "default") -> bool:
    """Whether the caller has a transaction open; the one around a Django TestCase does not count.

    Opens no connection.
    """
    blocks = connections[using].atomic_blocks
    # `atomic(durable=True)` asks the same question, by the same attribute.
    return bool(blocks) and not getattr(blocks[-1], "_from_testcase", False)


def retrying(work: Callable[[], R], using: str = "default") -> R:
    """`work()`, again after a lock timeout, a deadlock or a lost connection (MySQL errors only).

    `work` is a whole transaction that can be repeated: if the connection was lost during COMMIT,
    the first attempt may have been stored. If no later attempt succeeds, OutcomeUnknown is raised,
    whatever they raised; if no connection was lost, the error of the last attempt. Inside a
    transaction of the caller nothing is repeated, because the server rolled back more than `work`.
    """
    connection = connections[using]
    if connection.in_atomic_block:
        return work()
    pauses = Backoff(first=0.02, factor=2.5, cap=1.0, jitter=0.5)
    attempt, lost = 1, False
    while True:
        try:
            return work()
        except Error as error:
            code = error_code(error)
            lost = lost or _is_lost(error)
            if code not in REPEATABLE or attempt == ATTEMPTS:
                if lost:
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
    """Whether it is certain that the transaction which raised this has changed nothing."""
    if _is_lost(error):
        return False
    if isinstance(error, ProgrammingError) or error_code(error) in _NOTHING_HAPPENED:
        return True
    return str(error) in _SQLITE_NOTHING_HAPPENED


def _is_lost(error: BaseException | None) -> bool:
    """Whether a connection was lost during the transaction. At the end of `atomic` Django handles
    the loss by connecting again; if that fails too, the loss is only in the error's context."""
    while error is not None:
        if isinstance(error, Error) and error_code(error) in LOST:
            return True
        error = error.__context__
    return False


def error_code(error: BaseException) -> int:
    """The MySQL error number, or 0 (SQLite's errors have none)."""
    code = error.args[0] if error.args else 0
    return code if isinstance(code, int) else 0


# -- time ----------------------------------------------------------------------------------------
def now_sql(seconds: float = 0.0, using: str = "default") -> str:
    """The database's present time (UTC), `seconds` later or earlier, as models store it."""
    if connections[using].vendor == "mysql":
        later = f" + INTERVAL {round(seconds * 1_000_000)} MICROSECOND" if seconds else ""
        return f"(CURRENT_TIMESTAMP(6){later})"
    return f"STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW', '{seconds:+.3f} seconds')"


def now(using: str = "default") -> datetime:
    """The database's present time, aware, UTC."""
    with connections[using].cursor() as cursor:
        cursor.execute(f"SELECT {now_sql(using=using)}", ())
        (value,) = cursor.fetchone()
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    return moment.replace(tzinfo=UTC)


def stored(value: Any, using: str = "default") -> Any:
    """A parameter for raw SQL as a model's field would store it.

    Aware times need it: the drivers' own formats differ (SQLite's has +00:00 at its end, and
    compares wrongly with the times that models wrote).
    """
    if isinstance(value, datetime):
        return connections[using].ops.adapt_datetimefield_value(value)
    return value


# -- joins ---------------------------------------------------------------------------------------
def ordered_join(using: str = "default") -> str:
    """A join for which the database keeps the order in which the tables are written."""
    return "STRAIGHT_JOIN" if connections[using].vendor == "mysql" else "CROSS JOIN"


# -- plans ---------------------------------------------------------------------------------------
def plan(
    cursor: Any, statement: str, parameters: Any = None, using: str = "default"
) -> list[dict[str, Any]]:
    """How the server would run a statement: the columns of its plan, for each step.

    `cursor` may also be a driver's own, of the same database.
    """
    connection = connections[using]
    explain = "EXPLAIN QUERY PLAN"
    if connection.vendor == "mysql":
        # MySQL 9 answers with a tree unless it is asked for columns; MariaDB has no such word.
        is_mariadb = connection.mysql_is_mariadb  # type: ignore[attr-defined]  # the vendor's
        explain = "EXPLAIN" if is_mariadb else "EXPLAIN FORMAT=TRADITIONAL"
    cursor.execute(f"{explain} {statement}", parameters)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


# -- inserts -------------------------------------------------------------------------------------
def insert(table: str, columns: Sequence[str], rows: Iterable[Row], using: str = "default") -> None:
    """Insert rows (sequences in the order of `columns`), many in one statement; all or none."""
    _insert(table, columns, rows, "", using)


def insert_or_keep(
    table: str, columns: Sequence[str], rows: Iterable[Row], using: str = "default"
) -> None:
    """Insert rows; a row whose primary or unique key exists already is left as it is.

    Unlike INSERT IGNORE, any other error of a row is still raised. To see which rows were new, read
    them back: the row count does not tell (Django's MySQL connections count rows found).
    """
    _insert(table, columns, rows, _keep(table, columns[0], using), using)


def insert_or_update(
    table: str, columns: Sequence[str], rows: Iterable[Row], key: str = "id", using: str = "default"
) -> None:
    """Insert rows; a row whose `key` (a primary or unique column) exists gets these values.

    MySQL demands a value for each column without a default, even of rows that exist.
    """
    name = connections[using].ops.quote_name
    if connections[using].vendor == "mysql":
        sets = ", ".join(f"{name(c)} = VALUES({name(c)})" for c in columns if c != key)
        clause = f" ON DUPLICATE KEY UPDATE {sets}"
    else:
        sets = ", ".join(f"{name(c)} = excluded.{name(c)}" for c in columns if c != key)
        clause = f" ON CONFLICT ({name(key)}) DO UPDATE SET {sets}"
    _insert(table, columns, rows, clause, using)


def keep_existing(statement: str, table: str, column: str = "id", using: str = "default") -> str:
    """`INSERT … SELECT … WHERE …` with the clause that leaves existing rows as they are.

    SQLite needs the WHERE in order to tell the clause from a join's ON.
    """
    return statement.rstrip().rstrip(";") + _keep(table, column, using)


def add_counters(
    table: str,
    key: Sequence[str],
    rows: Iterable[tuple[Row, int]],
    value: str = "value",
    using: str = "default",
) -> None:
    """Add to counters, creating those that do not exist: rows are (values of `key`, how much).

    `key` names the columns of a unique key. Equal keys are added up and rows are sorted, so that
    two processes lock them in the same order.
    """
    total: dict[tuple[Any, ...], int] = {}
    for parts, amount in rows:
        total[tuple(parts)] = total.get(tuple(parts), 0) + amount
    name, quoted = connections[using].ops.quote_name, connections[using].ops.quote_name(value)
    if connections[using].vendor == "mysql":
        clause = f" ON DUPLICATE KEY UPDATE {quoted} = {quoted} + VALUES({quoted})"
    else:
        target = ", ".join(map(name, key))
        clause = f" ON CONFLICT ({target}) DO UPDATE SET {quoted} = {quoted} + excluded.{quoted}"
    merged = [(*parts, amount) for parts, amount in sorted(total.items())]
    _insert(table, [*key, value], merged, clause, using)


def _keep(table: str, column: str, using: str) -> str:
    if connections[using].vendor != "mysql":
        return " ON CONFLICT DO NOTHING"
    name = connections[using].ops.quote_name
    return f" ON DUPLICATE KEY UPDATE {name(table)}.{name(column)} = {name(table)}.{name(column)}"


def _insert(
    table: str, columns: Sequence[str], rows: Iterable[Row], clause: str, using: str
) -> None:
    connection = connections[using]
    name = connection.ops.quote_name
    start = f"INSERT INTO {name(table)} ({', '.join(map(name, columns))}) VALUES "  # noqa: S608
    given = list(rows)
    if not given:
        return
    with transaction.atomic(using, savepoint=False), connection.cursor() as cursor:
        if connection.vendor == "mysql":
            for values in mysql_values.statements(connection, given):
                statement = start.encode() + b",".join(values) + clause.encode()
                cursor.execute(cast(str, statement))  # bytes, since a payload need not be text
            return
        adapted = [tuple(stored(value, using) for value in row) for row in given]
        places = ", ".join(["%s"] * len(columns))
        cursor.executemany(f"{start}({places}){clause}", adapted)


def of_one(rows: QuerySet[Any, Any], column: str, value: Any) -> QuerySet[Any, Any]:
    """Rows with this value in `column`, to be paged by key: order them by `column` and the key, in
    the same direction.

    For `column = value AND id < cursor` MariaDB may use only the first column of the index, and
    skip over every row between the newest and the cursor. Given a range on both columns, it starts
    at the cursor. SQLite does the opposite.
    """
    if connections[rows.db].vendor != "mysql":
        return rows.filter(**{column: value})
    return rows.filter(**{f"{column}__gte": value, f"{column}__lte": value})


def first(rows: QuerySet[Any, Any], most: int) -> list[Any]:
    """The first `most` of ordered rows. Their ids are read first: if an index covers the condition
    and the order, no database then reads or sorts other rows, whatever its statistics say."""
    wanted = list(rows.values_list("pk", flat=True)[:most])
    found = rows.model._base_manager.using(rows.db).in_bulk(wanted)
    return [found[pk] for pk in wanted if pk in found]
