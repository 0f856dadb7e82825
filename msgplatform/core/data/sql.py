"""Raw SQL that SQLite and MariaDB spell differently.

Statements here are written for a cursor with parameters: a literal % is doubled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType, NoneType
from typing import Any, cast

from django.db import connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import QuerySet

Row = Sequence[Any]


# -- time ----------------------------------------------------------------------------------------
def now_sql(seconds: float = 0.0, using: str = "default") -> str:
    """The database's present time (UTC), `seconds` later or earlier, as models store it."""
    if connections[using].vendor == "mysql":
        offset = f" + INTERVAL {round(seconds * 1_000_000)} MICROSECOND" if seconds else ""
        return f"(CURRENT_TIMESTAMP(6){offset})"
    return f"STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW', '{seconds:+.3f} seconds')"


def now(using: str = "default") -> datetime:
    """The database's present time, aware, UTC."""
    with connections[using].cursor() as cursor:
        cursor.execute(f"SELECT {now_sql(using=using)}", ())
        (value,) = cursor.fetchone()
    return read_time(value)


def read_time(value: Any) -> datetime:
    """The time that a SELECT of `now_sql` gave, aware, UTC."""
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    return moment.replace(tzinfo=UTC)


def clock_step() -> timedelta:
    """The least by which two times of the database's clock differ, see `now_sql`."""
    return timedelta(microseconds=1 if connection.vendor == "mysql" else 1000)


def stored(value: Any, using: str = "default") -> Any:
    """A parameter for raw SQL as a model's field would store it.

    Aware times need it: the drivers' own formats differ (SQLite's has +00:00 at its end, and
    compares wrongly with the times that models wrote).
    """
    if isinstance(value, datetime):
        return connections[using].ops.adapt_datetimefield_value(value)
    return value


# -- joins ---------------------------------------------------------------------------------------
def ordered_join() -> str:
    """A join for which the database keeps the order in which the tables are written."""
    return "STRAIGHT_JOIN" if connection.vendor == "mysql" else "CROSS JOIN"


def table_of(name: str, columns: Sequence[str], rows: Iterable[Sequence[int]]) -> str:
    """A WITH clause for a table of these whole numbers."""
    row = row_word()
    values = ",".join(f"{row}({','.join(map(str, map(int, numbers)))})" for numbers in rows)
    return f"WITH {name}({', '.join(columns)}) AS (VALUES {values})"


def row_word() -> str:
    """The word before each row of a table that VALUES makes: ROW on MySQL, none elsewhere."""
    is_mysql = connection.vendor == "mysql" and not connection.mysql_is_mariadb  # type: ignore[attr-defined]  # the vendor's
    return "ROW" if is_mysql else ""


def checksum(columns: Iterable[str]) -> str | None:
    """An expression that has another value when one of these columns, or expressions, has; with a
    probability of 2^-32 it does not. None where the database has no checksums."""
    return None if connection.vendor != "mysql" else f"CRC32({_joined(columns)})"


def sum_of_checksums(columns: Iterable[str]) -> str | None:
    """As `checksum`, for all rows of a group. It is no sum of CRC32: of two rows that swap texts of
    one length the differences often cancel, since CRC32 is linear."""
    if connection.vendor != "mysql":
        return None
    return f"SUM(CAST(CONV(LEFT(SHA2({_joined(columns)}, 256), 15), 16, 10) AS UNSIGNED))"


def _joined(columns: Iterable[str]) -> str:
    # NULL would be left out; it differs from every text.
    texts = ", ".join(f"IFNULL({column}, CHAR(1))" for column in columns)
    return f"CONCAT_WS(CHAR(0), {texts})"


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
def insert(
    table: str,
    columns: Sequence[str],
    rows: Iterable[Row],
    using: str = "default",
    constants: Mapping[str, Any] | None = None,
) -> None:
    """Insert rows (sequences in the order of `columns`), many in one statement; all or none.
    `constants` are further columns with the same value in every row."""
    _insert(table, columns, rows, "", using, constants or {})


def insert_or_keep(
    table: str, columns: Sequence[str], rows: Iterable[Row], using: str = "default"
) -> None:
    """Insert rows; a row whose primary or unique key exists already is left as it is.

    Unlike INSERT IGNORE, any other error of a row is still raised. To see which rows were new, read
    them back: the row count does not tell (Django's MySQL connections count rows found).
    """
    _insert(table, columns, rows, _keep(table, columns[0], using), using)


def insert_or_update(
    table: str, columns: Sequence[str], rows: Iterable[Row], key: str = "id"
) -> None:
    """Insert rows; a row whose `key` (a primary or unique column) exists gets these values.

    MySQL demands a value for each column without a default, even of rows that exist.
    """
    name = connection.ops.quote_name
    if connection.vendor == "mysql":
        sets = ", ".join(f"{name(c)} = VALUES({name(c)})" for c in columns if c != key)
        clause = f" ON DUPLICATE KEY UPDATE {sets}"
    else:
        sets = ", ".join(f"{name(c)} = excluded.{name(c)}" for c in columns if c != key)
        clause = f" ON CONFLICT ({name(key)}) DO UPDATE SET {sets}"
    _insert(table, columns, rows, clause)


def keep_existing(statement: str, table: str, column: str = "id") -> str:
    """`INSERT … SELECT … WHERE …` with the clause that leaves existing rows as they are.

    SQLite needs the WHERE in order to tell the clause from a join's ON.
    """
    return statement.rstrip().rstrip(";") + _keep(table, column)


def add_counters(
    table: str, key: Sequence[str], rows: Iterable[tuple[Row, int]], value: str = "value"
) -> None:
    """Add to counters, creating those that do not exist: rows are (values of `key`, how much).

    `key` names the columns of a unique key. Equal keys are added up and rows are sorted, so that
    two processes lock them in the same order.
    """
    total: dict[tuple[Any, ...], int] = {}
    for parts, amount in rows:
        total[tuple(parts)] = total.get(tuple(parts), 0) + amount
    name, column = connection.ops.quote_name, connection.ops.quote_name(value)
    if connection.vendor == "mysql":
        clause = f" ON DUPLICATE KEY UPDATE {column} = {column} + VALUES({column})"
    else:
        target = ", ".join(map(name, key))
        clause = f" ON CONFLICT ({target}) DO UPDATE SET {column} = {column} + excluded.{column}"
    counter_rows = [(*parts, amount) for parts, amount in sorted(total.items())]
    _insert(table, [*key, value], counter_rows, clause)


def _keep(table: str, column: str, using: str = "default") -> str:
    if connections[using].vendor != "mysql":
        return " ON CONFLICT DO NOTHING"
    name = connections[using].ops.quote_name
    return f" ON DUPLICATE KEY UPDATE {name(table)}.{name(column)} = {name(table)}.{name(column)}"


def _insert(
    table: str,
    columns: Sequence[str],
    rows: Iterable[Row],
    clause: str,
    using: str = "default",
    constants: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    connection = connections[using]
    name = connection.ops.quote_name
    names = ", ".join(map(name, [*columns, *constants]))
    start = f"INSERT INTO {name(table)} ({names}) VALUES "  # noqa: S608
    end = tuple(constants.values())
    row_list = list(rows)
    if not row_list:
        return
    with transaction.atomic(using, savepoint=False), connection.cursor() as cursor:
        if connection.vendor == "mysql":
            for values in statements(connection, row_list, end):
                statement = start.encode() + b",".join(values) + clause.encode()
                cursor.execute(cast(str, statement))  # bytes, since a payload need not be text
            return
        adapted_rows = [tuple(stored(value, using) for value in (*row, *end)) for row in row_list]
        places = ", ".join(["%s"] * (len(columns) + len(end)))
        cursor.executemany(f"{start}({places}){clause}", adapted_rows)


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


def first(rows: QuerySet[Any, Any], limit: int) -> list[Any]:
    """The first `limit` of ordered rows. Their ids are read first: if an index covers the condition
    and the order, no database then reads or sorts other rows, whatever its statistics say."""
    row_ids = list(rows.values_list("pk", flat=True)[:limit])
    rows_by_id = rows.model._base_manager.using(rows.db).in_bulk(row_ids)
    return [rows_by_id[pk] for pk in row_ids if pk in rows_by_id]


# Far below the smallest max_allowed_packet in use (1 MiB for old clients, 16 MiB by default); a
# longer row goes alone.
_STATEMENT_BYTES = 512 * 1024
_ROWS = 1000

Literal = Callable[[Any], bytes]


def statements(
    connection: BaseDatabaseWrapper, rows: Sequence[Sequence[Any]], end: Sequence[Any] = ()
) -> Iterator[list[bytes]]:
    """Rows as `(1, 'a', NULL)`, as many at a time as go into one statement; each with the values of
    `end` behind its own."""
    literals = _literals(connection)
    anything = connection.connection.literal
    last = b"".join(b"," + literals.get(type(v), anything)(v) for v in end) + b")"
    batch: list[bytes] = []
    size = 0
    for row in rows:
        literal = b"(" + b",".join([literals.get(type(v), anything)(v) for v in row]) + last
        if batch and (size + len(literal) > _STATEMENT_BYTES or len(batch) == _ROWS):
            yield batch
            batch, size = [], 0
        batch.append(literal)
        size += len(literal)
    if batch:
        yield batch


def _literals(connection: BaseDatabaseWrapper) -> dict[type, Literal]:
    quote: Literal = connection.connection.string_literal
    anything: Literal = connection.connection.literal
    adapt = connection.ops.adapt_datetimefield_value
    is_utc = connection.timezone is UTC

    def text(value: str) -> bytes:
        return quote(value.encode())

    def moment(value: datetime) -> bytes:
        if is_utc and value.tzinfo is UTC:  # what adapt would do, in a tenth of the time
            return b"'%s'" % str(value.replace(tzinfo=None)).encode()
        return text(str(adapt(value)))

    def payload(value: memoryview) -> bytes:
        return anything(bytes(value))

    return {
        int: b"%d".__mod__,
        bool: lambda value: b"1" if value else b"0",
        memoryview: payload,  # the client library would store its name
        str: text,
        datetime: moment,
        NoneType: lambda _: b"NULL",
    }
