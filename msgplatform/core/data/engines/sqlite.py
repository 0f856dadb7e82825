"""SQLite: a file, with one writer at a time."""

import re
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.db import InterfaceError, OperationalError
from django.utils.translation import gettext

from msgplatform.core.data.engines.contract import (
    Column,
    Connection,
    Engine,
    Fault,
    Index,
    Row,
    Rows,
)

# SQLite's errors have hardly any numbers, only texts. Nothing happened after these errors.
NOTHING_HAPPENED = (
    "database is locked",
    "unable to open database file",
    "database or disk is full",
)
_COLUMN = re.compile(r"(?:constraint failed: [^.\s]+\.|no such column: |has no column named )(\w+)")
_FAULTS = (
    (re.compile("readonly database"), Fault.REFUSED),
    (re.compile("no such table"), Fault.NO_TABLE),
    (re.compile("no such column|no column named"), Fault.NO_COLUMN),
    (re.compile("empty pragma|file is not a database"), Fault.DAMAGED),
)
_LATER = (
    (re.compile("unable to open"), Fault.NO_FILE),
    (re.compile("locked|disk"), Fault.LATER),
)
_AFFINITIES = (
    (("int",), "integer"),
    (("char", "clob", "text", "uuid", "uniqueidentifier"), "text"),
    (("datetime", "timestamp"), "datetime"),
    (("bool",), "bool"),
    (("numeric", "decimal"), "numeric"),
)
_LAST = "\U0010ffff"  # sorts behind every other character


class Sqlite(Engine):
    name = "SQLite"
    is_server = False
    has_partitions = False
    has_exact_times = False  # .5 and .500000 are one moment
    finds_rows_by_any_key = False
    clock_step = timedelta(milliseconds=1)
    exact_collation = None
    ordered_join = "CROSS JOIN"
    bytes_type = "BLOB"
    explain = "EXPLAIN QUERY PLAN"
    begin = "BEGIN IMMEDIATE"  # waiting for the lock later ends in an error
    backend = "django.db.backends.sqlite3"
    options: dict[str, Any] = {
        # Deferred BEGIN lets two writers deadlock ("database is locked"). IMMEDIATE queues writers.
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; "
        "PRAGMA busy_timeout=20000;",
    }
    # The file is somebody else's: its journal mode stays what its owner chose.
    writer_options: dict[str, Any] = {"transaction_mode": "IMMEDIATE", "timeout": 20}
    option_names = frozenset({
        "cached_statements", "check_same_thread", "detect_types", "init_command",
        "isolation_level", "timeout", "transaction_mode", "uri",
    })  # fmt: skip
    time_types = frozenset({"datetime", "text"})

    def fault(self, error: BaseException) -> Fault:
        code: int = getattr(error.__cause__, "sqlite_errorcode", 0)
        if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            return Fault.DAMAGED
        is_of_file = isinstance(error, OperationalError | InterfaceError)
        patterns = [*_FAULTS, *(_LATER if is_of_file else ())]
        text = str(error)
        return next((fault for pattern, fault in patterns if pattern.search(text)), Fault.OTHER)

    # -- words -----------------------------------------------------------------------------------
    def now(self, seconds: float = 0.0) -> str:
        return f"STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW', '{seconds:+.3f} seconds')"

    def age(self, time: str) -> str:
        return f"(JULIANDAY('now') - JULIANDAY({time})) * 86400.0"

    def force_index(self, index: str) -> str:
        return "" if index == "PRIMARY" else f"INDEXED BY {index}"

    def by_primary_key(self, connection: Connection, table: str) -> str:
        # An INTEGER PRIMARY KEY is the row id, which NOT INDEXED allows. Another primary key is an
        # index, and NOT INDEXED would read the whole table.
        quote = connection.ops.quote_name
        with connection.cursor() as cursor:
            cursor.execute(f"PRAGMA index_list({quote(table)})")
            names = [name for _, name, _, origin, _ in cursor.fetchall() if origin == "pk"]
        return f"INDEXED BY {quote(names[0])}" if names else "NOT INDEXED"

    def delete_by_key(self, table: str) -> str:
        return f"DELETE FROM {table}"  # noqa: S608

    def branch(self, select: str) -> str:
        return f"SELECT * FROM ({select})"  # noqa: S608

    def choice(self, column: str, ids: Sequence[int]) -> str:
        return f"CASE id {' '.join(f'WHEN {row_id} THEN %s' for row_id in ids)} ELSE {column} END"

    def contains(self, column: str) -> str:
        return f"INSTR({column}, %s) > 0"

    def bytes_of(self, text: str) -> bytes:
        return text.encode()  # compared with bytes only

    def exact(self, text: str) -> str:
        return f"CAST({text} AS BLOB)"

    def begins_with(self, column: str, prefix: str) -> dict[str, str]:
        return {f"{column}__gte": prefix, f"{column}__lt": prefix + _LAST}

    def equals(self, column: str, value: Any) -> dict[str, Any]:
        return {column: value}

    # -- writing ---------------------------------------------------------------------------------
    def upsert(self, key: Sequence[str]) -> str:
        return f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET "

    def new_value(self, column: str) -> str:
        return f"excluded.{column}"

    def keep(self, table: str, column: str) -> str:
        # After INSERT … SELECT the clause needs a WHERE before it, or ON would belong to a join.
        return " ON CONFLICT DO NOTHING"

    def keep_newer(self, table: str, columns: Sequence[str], is_number: bool) -> str:
        key, *value_columns = columns
        new_key, old_key, old = f"excluded.{key}", f"{table}.{key}", f"{table}.{value_columns[-1]}"
        if not is_number:
            new_key, old_key = self.exact(new_key), self.exact(old_key)
        sets = ", ".join(f"{name} = excluded.{name}" for name in value_columns)
        return (
            f"{self.upsert([key])}{sets} WHERE {old_key} = {new_key} "
            f"AND ({old} IS NULL OR excluded.{value_columns[-1]} >= {old})"
        )

    def insert(
        self, cursor: Any, start: str, rows: Sequence[Row], clause: str = "", end: Row = ()
    ) -> None:
        adapt = cursor.db.ops.adapt_datetimefield_value
        places = ", ".join(["%s"] * (len(rows[0]) + len(end)))
        all_values = [
            [adapt(value) if isinstance(value, datetime) else value for value in (*row, *end)]
            for row in rows
        ]
        cursor.executemany(f"{start}({places}){clause}", all_values)

    def update(
        self,
        cursor: Any,
        table: str,
        columns: Sequence[str],
        rows: Sequence[Row],
        constants: Mapping[str, Any],
    ) -> None:
        adapt = cursor.db.ops.adapt_datetimefield_value
        key, *others = columns
        sets = ", ".join(f"{name} = %s" for name in (*others, *constants))
        all_values = [
            [
                adapt(value) if isinstance(value, datetime) else value
                for value in (*row[1:], *constants.values(), row[0])
            ]
            for row in rows
        ]
        cursor.executemany(f"UPDATE {table} SET {sets} WHERE {key} = %s", all_values)  # noqa: S608

    def overwrite_deleted(self, connection: Connection) -> None:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA secure_delete=ON")

    def clear_log(self, connection: Connection) -> None:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def limit_lock_wait(self, connection: Connection, seconds: int) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"PRAGMA busy_timeout = {seconds * 1000}")

    # -- triggers --------------------------------------------------------------------------------
    # The clock has milliseconds. The text ends with 001, because Django writes a time without
    # microseconds shorter, and texts of different length compare wrongly.
    trigger_time = "strftime('%Y-%m-%d %H:%M:%f', 'now') || '001'"
    trigger_version = "MAX(OLD.version + 1, CAST(strftime('%s', 'now') AS INTEGER))"

    def insert_trigger(self, name: str, table: str, assignments: Mapping[str, str]) -> str:
        return f"CREATE TRIGGER {name} AFTER INSERT ON {table} {_set_statement(table, assignments)}"

    def update_trigger(
        self, name: str, table: str, assignments: Mapping[str, str], columns: Sequence[str]
    ) -> str:
        # No column that the insert trigger sets: it would fire this trigger.
        names = ", ".join(columns)
        body = _set_statement(table, assignments)
        return f"CREATE TRIGGER {name} AFTER UPDATE OF {names} ON {table} {body}"

    def triggers(self, cursor: Any, table: str) -> dict[str, tuple[str, str, str]]:
        cursor.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = %s", [table]
        )
        return {name: (statement, "", "") for name, statement in cursor.fetchall()}

    def trigger_body(self, statement: str) -> str:
        return statement

    # -- databases of others ---------------------------------------------------------------------
    def existing_only(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {**config, "NAME": f"{Path(config['NAME']).absolute().as_uri()}?mode=rw"}

    def reading(self, config: Mapping[str, Any]) -> dict[str, Any]:
        # The journal mode stays what the file's owner chose.
        options = {"timeout": 20, "init_command": "PRAGMA query_only = ON"}
        return {**self.existing_only(config), "OPTIONS": options}

    def describe(self, rows: Rows, table: str) -> tuple[list[Column], list[Index], bool]:
        name = _quote(table)
        columns, indexes = [], []
        parts = rows(f"PRAGMA table_info({name})")
        for _, column, kind, not_null, _, primary in parts:
            columns.append(Column(column, _affinity(kind), not (not_null or primary)))
            if primary == 1:
                indexes.append(Index("PRIMARY", (column.lower(),), True))
        if len([part for part in parts if part[5]]) > 1:
            indexes.clear()  # a key of several columns; its index is in the list below
        for _, index, unique, _, partial in rows(f"PRAGMA index_list({name})"):
            names = rows(f"PRAGMA index_info({_quote(index)})")
            if not partial:
                lower = tuple(str(part[2]).lower() for part in names)
                indexes.append(Index(index, lower, bool(unique)))
        kinds = rows("SELECT type FROM sqlite_master WHERE name = %s", [table])
        return columns, indexes, list(kinds) == [("view",)]

    def time_fault(self, rows: Rows, table: str, column: str) -> str:
        """SQLite stores any value, and other forms of a time sort in another order."""
        numbers = rows(
            f"SELECT {column} || '' FROM {table} "  # noqa: S608 - quoted names
            f"WHERE {column} < '' ORDER BY {column} DESC LIMIT 1"
        )
        if numbers:
            text = gettext(
                "are numbers, such as %s; they must be text, written as 2026-01-31 23:59:59.999"
            )
            return text % str(numbers[0][0])
        ((newest,),) = rows(f"SELECT MAX({column}) || '' FROM {table}")  # noqa: S608
        if newest and not (newest[:4].isdigit() and newest[10:11] == " "):
            text = gettext("are written as %s, they must be written as 2026-01-31 23:59:59.999")
            return text % repr(newest)
        return ""

    def time_text(self, column: str) -> str:
        return f"{column} || ''"

    def seek_condition(self, time: str, key: str) -> tuple[str, tuple[int, ...]]:
        return f"({time}, {key}) > (%s, %s)", (0, 1)


def column_of(text: str) -> str:
    """The column that the text of an error names, '' when it names none."""
    column = _COLUMN.search(text)
    return column.group(1) if column else ""


def _set_statement(table: str, assignments: Mapping[str, str]) -> str:
    sets = ", ".join(f"{column} = {value}" for column, value in assignments.items())
    return f"BEGIN UPDATE {table} SET {sets} WHERE id = NEW.id; END"  # noqa: S608


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _affinity(kind: str) -> str:
    """The type that SQLite uses for a declared type, by SQLite's rules. Times and truth values are
    recognised by the declared name, because SQLite has no such types."""
    type_text = kind.lower()
    for parts, meaning in _AFFINITIES:
        if any(part in type_text for part in parts):
            return meaning
    return type_text.partition("(")[0].strip() or "blob"
