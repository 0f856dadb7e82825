"""A source's table as it really is, compared with its description."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, tzinfo

from crmsync.poller.reading.database import Database
from crmsync.poller.reading.source import Source, SourceMismatch, parse_zone

# Rows whose time is NULL or zero have no place in the order by time: they would never be read.
FIRST_TIME = "1970-01-01 00:00:01"
_INTEGERS = {
    "tinyint", "smallint", "mediumint", "int", "integer", "bigint", "bit", "bool", "numeric",
}  # fmt: skip
_TEXTS = {"char", "varchar", "text", "uuid"}
_TIMES = {"mysql": {"timestamp", "datetime"}, "sqlite": {"datetime", "text"}}

_AFFINITIES = (
    (("int",), "integer"),
    (("char", "clob", "text", "uuid", "uniqueidentifier"), "text"),
    (("datetime", "timestamp"), "datetime"),
    (("bool",), "bool"),
    (("numeric", "decimal"), "numeric"),
)


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str  # lower case, without length
    nullable: bool


@dataclass(frozen=True, slots=True)
class Index:
    name: str
    columns: tuple[str, ...]
    unique: bool


@dataclass(frozen=True, slots=True)
class Table:
    """What reading needs to know: the zone of the time column, and the index that orders it.

    Without an index (its name is empty) every poll reads the whole table.
    """

    zone: tzinfo
    index: str
    bits: frozenset[str] = frozenset()  # columns of the type BIT, in lower case


def inspect(source: Source, database: Database) -> Table:
    """Look at the source's table. Raises SourceMismatch with what is wrong, or what `rows` raises.

    A view has no indexes of its own: that its key is unique is taken on trust.
    """
    read = _mysql_table if database.is_mysql else _sqlite_table
    columns, indexes, is_view = read(source.table, database)
    if not columns:
        raise SourceMismatch(f"the table {source.table} does not exist, or may not be read")
    by_name = {column.name.lower(): column for column in columns}
    for name in source.columns.all():
        if name.lower() not in by_name:
            raise SourceMismatch(
                f"the table {source.table} has no column {name}, or it may not be read"
            )
    _check_columns(source, by_name, "mysql" if database.is_mysql else "sqlite")
    key = source.columns.key.lower()
    if not is_view and by_name[key].nullable:
        raise SourceMismatch(f"the column {source.columns.key} must not allow NULL: it is the key")
    if not is_view and not any(index.unique and index.columns == (key,) for index in indexes):
        raise SourceMismatch(f"the column {source.columns.key} is not unique: it is the key")
    _check_times(source, database)
    kind = by_name[source.columns.update_time.lower()].type
    zone = UTC if database.is_mysql and kind == "timestamp" else parse_zone(source.zone)
    bits = frozenset(name for name, column in by_name.items() if column.type == "bit")
    return Table(zone, _order_index(source, indexes), bits)


def _check_columns(source: Source, columns: dict[str, Column], vendor: str) -> None:
    rules = (
        (source.columns.update_time, _TIMES[vendor], "a date with a time"),
        (source.columns.key, _INTEGERS | _TEXTS, "an integer or text"),
        (source.columns.is_deleted, _INTEGERS, "an integer or a truth value"),
        (source.columns.version, _INTEGERS, "an integer"),
    )
    for name, allowed, wanted in rules:
        if name and (kind := columns[name.lower()].type) not in allowed:
            raise SourceMismatch(f"the column {name} has the type {kind}, it must be {wanted}")


def _check_times(source: Source, database: Database) -> None:
    """SQLite stores whatever it is given, and times of another form are in another order."""
    if database.is_mysql:
        return
    table, time = database.quote(source.table), database.quote(source.columns.update_time)
    numbers = database.rows(
        f"SELECT {time} || '' FROM {table} "  # noqa: S608 - quoted names
        f"WHERE {time} < '' ORDER BY {time} DESC LIMIT 1"
    )
    if numbers:
        raise SourceMismatch(
            f"times in {source.columns.update_time} are numbers, such as {numbers[0][0]}; they "
            "must be text, written as 2026-01-31 23:59:59.999"
        )
    newest = database.rows(f"SELECT MAX({time}) || '' FROM {table}")[0][0]  # noqa: S608
    if newest and not (newest[:4].isdigit() and newest[10:11] == " "):
        raise SourceMismatch(
            f"times in {source.columns.update_time} are written as {newest!r}, they must be "
            "written as 2026-01-31 23:59:59.999"
        )


def _order_index(source: Source, indexes: list[Index]) -> str:
    """The name of the index by (time, key), '' when there is none. One by time alone will do where
    the key is the primary key: InnoDB adds that to every index."""
    time, key = source.columns.update_time.lower(), source.columns.key.lower()
    primary = next((index.columns for index in indexes if index.name == "PRIMARY"), ())
    for wanted in ((time, key), (time,)):
        for index in indexes:
            if index.columns == wanted and (len(wanted) == 2 or primary == (key,)):
                return index.name
    return ""


def _mysql_table(table: str, database: Database) -> tuple[list[Column], list[Index], bool]:
    columns = database.rows(
        "SELECT COLUMN_NAME, LOWER(DATA_TYPE), IS_NULLABLE FROM information_schema.COLUMNS "
        "WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s",
        [table],
    )
    parts = database.rows(
        "SELECT INDEX_NAME, LOWER(COLUMN_NAME), NON_UNIQUE FROM information_schema.STATISTICS "
        "WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s ORDER BY INDEX_NAME, SEQ_IN_INDEX",
        [table],
    )
    kinds = database.rows(
        "SELECT TABLE_TYPE FROM information_schema.TABLES "
        "WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s",
        [table],
    )
    indexes: dict[str, Index] = {}
    for name, column, non_unique in parts:
        before = indexes[name].columns if name in indexes else ()
        indexes[name] = Index(name, (*before, column), not non_unique)
    made = [Column(name, _plain(kind), nullable == "YES") for name, kind, nullable in columns]
    return made, list(indexes.values()), kinds == [("VIEW",)]


def _sqlite_table(table: str, database: Database) -> tuple[list[Column], list[Index], bool]:
    quoted = database.quote(table)
    columns, indexes = [], []
    for _, name, kind, not_null, _, primary in database.rows(f"PRAGMA table_info({quoted})"):
        columns.append(Column(name, _affinity(kind), not (not_null or primary)))
        if primary == 1:
            indexes.append(Index("PRIMARY", (name.lower(),), True))
    if len([row for row in database.rows(f"PRAGMA table_info({quoted})") if row[5]]) > 1:
        indexes.clear()  # a key of several columns; its index is in the list below
    for _, name, unique, _, partial in database.rows(f"PRAGMA index_list({quoted})"):
        parts = database.rows(f"PRAGMA index_info({database.quote(name)})")
        if not partial:
            indexes.append(Index(name, tuple(str(part[2]).lower() for part in parts), bool(unique)))
    kinds = database.rows("SELECT type FROM sqlite_master WHERE name = %s", [table])
    return columns, indexes, kinds == [("view",)]


def _affinity(kind: str) -> str:
    """What SQLite makes of a declared type, by its own rules; it knows neither times nor truth
    values, which are told by their names."""
    declared = kind.lower()
    for parts, meaning in _AFFINITIES:
        if any(part in declared for part in parts):
            return meaning
    return declared.partition("(")[0].strip() or "blob"


def _plain(kind: str) -> str:
    """`BIGINT(20) UNSIGNED` is `bigint`."""
    return kind.lower().partition("(")[0].split(" ")[0].removeprefix("long").removeprefix("medium")
