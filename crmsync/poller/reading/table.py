"""Inspect a source's table and compare it with its description."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
    """The facts that reading needs: the zone of the time column, and the index that orders it.

    Without an index (its name is empty) every poll reads the whole table.
    """

    zone: tzinfo
    index: str
    # Columns by their names in lower case: those of the types BIT and FLOAT, and the zones of those
    # that hold a date with a time.
    bits: frozenset[str] = frozenset()
    floats: frozenset[str] = frozenset()
    zones: Mapping[str, tzinfo] = field(default_factory=dict)
    # The zone in which people at the source read a clock.
    local_zone: tzinfo = UTC


def inspect(source: Source, database: Database) -> Table:
    """Inspect the source's table. Raises SourceMismatch with the problem, or an error of `rows`.

    A view has no indexes of its own: its key is assumed to be unique.
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
    own_zone = parse_zone(source.zone)
    # The session's zone is UTC, and MySQL converts a TIMESTAMP to it; a DATETIME stays as it was
    # written.
    zones = {
        name: UTC if database.is_mysql and column.type == "timestamp" else own_zone
        for name, column in by_name.items()
        if column.type in ("timestamp", "datetime")
    }
    return Table(
        zones.get(source.columns.update_time.lower(), own_zone),
        _order_index(source, indexes),
        frozenset(name for name, column in by_name.items() if column.type == "bit"),
        frozenset(name for name, column in by_name.items() if column.type == "float"),
        zones,
        own_zone,
    )


def _check_columns(source: Source, columns: dict[str, Column], vendor: str) -> None:
    rules = (
        (source.columns.update_time, _TIMES[vendor], "a date with a time"),
        (source.columns.key, _INTEGERS | _TEXTS, "an integer or text"),
        (source.columns.is_deleted, _INTEGERS, "an integer or a truth value"),
        (source.columns.version, _INTEGERS, "an integer"),
    )
    for name, types, meaning in rules:
        if name and (kind := columns[name.lower()].type) not in types:
            raise SourceMismatch(f"the column {name} has the type {kind}, it must be {meaning}")


def _check_times(source: Source, database: Database) -> None:
    """Check the form of SQLite's times: it stores any value, and other forms sort otherwise."""
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
    """The name of the index by (time, key), '' without one. An index by time alone will do where
    the key is the primary key: InnoDB adds that to every index."""
    time, key = source.columns.update_time.lower(), source.columns.key.lower()
    primary = next((index.columns for index in indexes if index.name == "PRIMARY"), ())
    for columns in ((time, key), (time,)):
        for index in indexes:
            if index.columns == columns and (len(columns) == 2 or primary == (key,)):
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
        columns_so_far = indexes[name].columns if name in indexes else ()
        indexes[name] = Index(name, (*columns_so_far, column), not non_unique)
    all_columns = [
        Column(name, _plain(kind), nullable == "YES") for name, kind, nullable in columns
    ]
    return all_columns, list(indexes.values()), kinds == [("VIEW",)]


def _sqlite_table(table: str, database: Database) -> tuple[list[Column], list[Index], bool]:
    table_name = database.quote(table)
    columns, indexes = [], []
    for _, name, kind, not_null, _, primary in database.rows(f"PRAGMA table_info({table_name})"):
        columns.append(Column(name, _affinity(kind), not (not_null or primary)))
        if primary == 1:
            indexes.append(Index("PRIMARY", (name.lower(),), True))
    if len([row for row in database.rows(f"PRAGMA table_info({table_name})") if row[5]]) > 1:
        indexes.clear()  # a key of several columns; its index is in the list below
    for _, name, unique, _, partial in database.rows(f"PRAGMA index_list({table_name})"):
        parts = database.rows(f"PRAGMA index_info({database.quote(name)})")
        if not partial:
            indexes.append(Index(name, tuple(str(part[2]).lower() for part in parts), bool(unique)))
    kinds = database.rows("SELECT type FROM sqlite_master WHERE name = %s", [table])
    return columns, indexes, kinds == [("view",)]


def _affinity(kind: str) -> str:
    """The type that SQLite uses for a declared one, by its own rules. SQLite has neither times nor
    truth values: these are recognised by their names."""
    type_text = kind.lower()
    for parts, meaning in _AFFINITIES:
        if any(part in type_text for part in parts):
            return meaning
    return type_text.partition("(")[0].strip() or "blob"


def _plain(kind: str) -> str:
    """The plain type: `bigint` for `BIGINT(20) UNSIGNED`."""
    return kind.lower().partition("(")[0].split(" ")[0].removeprefix("long").removeprefix("medium")
