"""Raw SQL that differs between engines.

Statements here are written for a cursor with parameters: a literal % is doubled.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from django.db import connection, connections, transaction
from django.db.models import QuerySet

from msgplatform.core.data import engines
from msgplatform.core.data.engines.contract import Row


# -- time ----------------------------------------------------------------------------------------
def now_sql(seconds: float = 0.0, using: str = "default") -> str:
    """The database's present time (UTC) plus `seconds`, as models store it."""
    return engines.of(using).now(seconds)


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


def stored(value: Any, using: str = "default") -> Any:
    """A parameter for raw SQL as a model's field would store it.

    Aware times need it: the drivers' own formats differ (SQLite's has +00:00 at its end, and
    compares wrongly with the times that models wrote).
    """
    if isinstance(value, datetime):
        return connections[using].ops.adapt_datetimefield_value(value)
    return value


# -- joins ---------------------------------------------------------------------------------------
def table_of(name: str, columns: Sequence[str], rows: Iterable[Sequence[int]]) -> str:
    """A WITH clause for a table of these whole numbers."""
    row = engines.of().row_word
    values = ",".join(f"{row}({','.join(map(str, map(int, numbers)))})" for numbers in rows)
    return f"WITH {name}({', '.join(columns)}) AS (VALUES {values})"


# -- writing -------------------------------------------------------------------------------------
def insert(
    table: str,
    columns: Sequence[str],
    rows: Iterable[Row],
    using: str = "default",
    constants: Mapping[str, Any] = MappingProxyType({}),
    clause: str = "",
) -> None:
    """Insert rows (sequences in the order of `columns`), many in one statement; all rows or none.
    `constants` are further columns with the same value in every row. `clause` stands after the
    rows."""
    row_list = list(rows)
    if not row_list:
        return
    quote = connections[using].ops.quote_name
    names = ", ".join(map(quote, [*columns, *constants]))
    start = f"INSERT INTO {quote(table)} ({names}) VALUES "  # noqa: S608
    with transaction.atomic(using, savepoint=False), connections[using].cursor() as cursor:
        engines.of(using).insert(cursor, start, row_list, clause, tuple(constants.values()))


def insert_or_keep(
    table: str, columns: Sequence[str], rows: Iterable[Row], using: str = "default"
) -> None:
    """Insert rows. A row whose primary or unique key exists already stays as it is.

    Other errors of a row are raised, unlike with INSERT IGNORE. To see which rows were new, read
    them back, because Django's MySQL connections count matched rows.
    """
    keep = engines.of(using).keep(table, columns[0])
    insert(table, columns, rows, using, clause=keep)


def insert_or_update(
    table: str, columns: Sequence[str], rows: Iterable[Row], key: str = "id"
) -> None:
    """Insert rows; an existing row with the same `key` (a primary or unique column) is updated.

    MySQL demands a value for each column without a default, even of rows that exist.
    """
    engine, quote = engines.of(), connection.ops.quote_name
    names = [quote(column) for column in columns if column != key]
    sets = ", ".join(f"{name} = {engine.new_value(name)}" for name in names)
    insert(table, columns, rows, clause=f"{engine.upsert([quote(key)])}{sets}")


def update(
    table: str, columns: Sequence[str], rows: Sequence[Row], constants: Mapping[str, Any]
) -> None:
    """Update the rows that exist (sequences in the order of `columns`, the first of which is the
    primary key), many in one statement; all rows or none. `constants` are further columns with the
    same value in every row."""
    if not rows:
        return
    quote = connection.ops.quote_name
    values = {quote(column): value for column, value in constants.items()}
    with transaction.atomic(savepoint=False), connection.cursor() as cursor:
        engines.of().update(cursor, quote(table), list(map(quote, columns)), rows, values)


def keep_existing(statement: str, table: str, column: str = "id") -> str:
    """`INSERT … SELECT … WHERE …` with the clause that leaves existing rows as they are.

    SQLite needs the WHERE in order to tell the clause from a join's ON.
    """
    return statement.rstrip().rstrip(";") + engines.of().keep(table, column)


def add_counters(
    table: str, key: Sequence[str], rows: Iterable[tuple[Row, int]], value: str = "value"
) -> None:
    """Add to counters, creating missing ones: rows are (values of `key`, amount).

    `key` names the columns of a unique key. Equal keys are added up and rows are sorted, so that
    all processes lock rows in the same order.
    """
    totals: Counter[tuple[Any, ...]] = Counter()
    for key_values, amount in rows:
        totals[tuple(key_values)] += amount
    engine, quote = engines.of(), connection.ops.quote_name
    column = quote(value)
    upsert = engine.upsert([quote(name) for name in key])
    clause = f"{upsert}{column} = {column} + {engine.new_value(column)}"
    counter_rows = [(*key_values, total) for key_values, total in sorted(totals.items())]
    insert(table, [*key, value], counter_rows, clause=clause)


def of_one(rows: QuerySet[Any, Any], column: str, value: Any) -> QuerySet[Any, Any]:
    """Rows with this value in `column`, for paging by key: order the rows by `column` and the key,
    in the same direction."""
    return rows.filter(**engines.of(rows.db).equals(column, value))


def first(rows: QuerySet[Any, Any], limit: int) -> list[Any]:
    """The first `limit` of ordered rows. The ids are read first: if an index covers condition and
    order, a database then reads and sorts no other rows, whatever its statistics say."""
    row_ids = list(rows.values_list("pk", flat=True)[:limit])
    rows_by_id = rows.model._base_manager.using(rows.db).in_bulk(row_ids)
    return [rows_by_id[pk] for pk in row_ids if pk in rows_by_id]


def names_by_id(rows: QuerySet[Any, Any], ids: Iterable[int]) -> dict[int, str]:
    """Id → name of the row, as its model writes it (`__str__`). Id 0, which refers to nothing, and
    a deleted row have none. One statement at most."""
    return {pk: str(row) for pk, row in rows.in_bulk({pk for pk in ids if pk}).items()}
