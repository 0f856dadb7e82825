"""Any database by URL: leads become rows of one table.

    INSERT … ON DUPLICATE KEY UPDATE      (SQLite: ON CONFLICT … DO UPDATE)

The table needs a column with the key, under a unique key of its own, and one with the version: an
older version never overwrites a newer. A deleted record is marked in `deleted_column`, or its row
is deleted when there is none; a deleted row forgets its version.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, cast
from urllib.parse import unquote, urlsplit

from django.db import DatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import ConnectionHandler

from crmsync.adapters import sql_errors
from crmsync.adapters.base import (
    AdapterCredentials,
    AdapterSettings,
    CredentialsRefused,
    CRMAdapter,
    Field,
    Record,
    Stored,
)
from crmsync.adapters.outcomes import Ok, Outcome, Unknown
from crmsync.adapters.sql_table import Table, read_table
from msgplatform.core.data import databases, mysql_values, sql
from msgplatform.core.data.chunks import chunks
from msgplatform.core.errors import InvalidInput, Unavailable

_NAME = re.compile(r"[\w$][\w$ -]{0,63}")
_KEYS_AT_ONCE = 500


class SqlSettings(AdapterSettings, frozen=True, kw_only=True):
    """`deleted_column` holds 1 for a deleted record and 0 for others; '': rows are deleted."""

    table: str
    key_column: str = "id"
    version_column: str = "version"
    deleted_column: str = ""


class SqlCredentials(AdapterCredentials, frozen=True, kw_only=True):
    url: str


class SqlAdapter(CRMAdapter):
    """Rows of a table in MySQL, MariaDB or SQLite."""

    name = "sql"
    title = "The database"
    Settings = SqlSettings
    Credentials = SqlCredentials
    batch_size = 500
    is_upsert = True

    settings: SqlSettings
    credentials: SqlCredentials

    def __init__(self, settings: Mapping[str, Any], credentials: Mapping[str, Any]) -> None:
        super().__init__(settings, credentials)
        given = self.settings
        for name in ("table", "key_column", "version_column", "deleted_column"):
            value = getattr(given, name)
            if not _NAME.fullmatch(value) and (value or name != "deleted_column"):
                raise InvalidInput(f"The setting {name} is no name of a table or column.", name)
        config = databases.for_writing(self.credentials.url)
        if not databases.is_mysql(config):  # a wrong path is an error, not a new database
            config["NAME"] = f"file:{config['NAME']}?mode=rw"
        # Not among Django's own connections: this one is not migrated, and goes with the adapter.
        self._handler = ConnectionHandler({"default": config})
        self._mysql = databases.is_mysql(config)
        self._known: Table | None = None

    def secrets(self) -> Iterable[str]:
        password = urlsplit(self.credentials.url).password or ""
        return [self.credentials.url, password, unquote(password)]

    def close(self) -> None:
        self._handler.close_all()

    # -- reading ---------------------------------------------------------------------------------
    def fields(self) -> Mapping[str, Field]:
        self._known = None  # the table may have changed since
        try:
            table = self._table()
        except DatabaseError as error:
            raise self._error(error) from None
        given = self.settings
        for setting in ("key_column", "version_column", "deleted_column"):
            name = getattr(given, setting)
            if name and name not in table.columns:
                raise InvalidInput(f"The table {given.table} has no column {name}.", setting)
        if not table.key_is_unique:
            raise InvalidInput(
                f"The column {given.key_column} of the table {given.table} needs a unique key.",
                "key_column",
            )
        own = (given.key_column, given.version_column, given.deleted_column)
        return {name: field for name, field in table.columns.items() if name not in own}

    def read(self, keys: Collection[str]) -> Mapping[str, Stored]:
        try:
            table = self._table()
            with self._open().cursor() as cursor:
                return self._read(cursor, table, keys)
        except DatabaseError as error:
            raise self._error(error) from None

    def _read(self, cursor: Any, table: Table, keys: Collection[str]) -> dict[str, Stored]:
        given = self.settings
        names = list(table.columns)
        own = (given.key_column, given.version_column, given.deleted_column)
        found: dict[str, Stored] = {}
        columns = ", ".join(map(self._quoted, names))
        for values in self._rows(cursor, columns, table, keys):
            row = dict(zip(names, values, strict=True))
            key = str(row[given.key_column])
            found[key] = Stored(
                key,
                {name: value for name, value in row.items() if name not in own},
                bool(given.deleted_column and row[given.deleted_column]),
                row[given.version_column],
            )
        return {key: found[key] for key in keys if key in found}

    # -- writing ---------------------------------------------------------------------------------
    def deliver(self, batch: Sequence[Record]) -> Sequence[Outcome]:
        try:
            table = self._table()
        except DatabaseError as error:
            return [self._verdict(error, len(batch))] * len(batch)
        outcomes: dict[str, Outcome] = {}
        good: list[Record] = []
        for record in batch:
            if problem := table.problem(record):
                outcomes[record.key] = problem
            else:
                good.append(record)
        if good:
            outcomes.update(self._write(table, good))
        return [outcomes[record.key] for record in batch]

    def _write(self, table: Table, records: list[Record]) -> dict[str, Outcome]:
        """All in one transaction."""
        stage: Literal["begin", "work", "commit"] = "begin"
        try:
            connection = self._open()
            with connection.cursor() as cursor:
                cursor.execute("START TRANSACTION" if self._mysql else "BEGIN IMMEDIATE")
                stage = "work"
                outcomes = self._statements(cursor, table, records)
                stage = "commit"
                cursor.execute("COMMIT")
            return outcomes
        except DatabaseError as error:
            if stage != "begin" and sql.error_code(error) not in sql_errors.LOST:
                self._roll_back()
            else:
                self._drop()
            outcome = self._verdict(error, len(records))
            if stage == "commit" and sql.error_code(error) in sql_errors.LOST:
                outcome = Unknown("The connection was lost while the transaction was committed.")
            return {record.key: outcome for record in records}
        except BaseException:  # a value that the driver cannot write is a fault of ours
            self._drop()
            raise

    def _statements(self, cursor: Any, table: Table, records: list[Record]) -> dict[str, Outcome]:
        given = self.settings
        before = self._present(cursor, table, [record.key for record in records])
        removed = [r for r in records if r.deleted and not given.deleted_column]
        kept = [r for r in records if not r.deleted or given.deleted_column]
        # In the order of keys, so that two writers lock rows in the same order.
        kept.sort(key=lambda record: record.key)
        shapes: dict[tuple[str, ...], list[Record]] = {}
        for record in kept:
            shapes.setdefault(tuple(sorted(record.fields)), []).append(record)
        for names, group in shapes.items():
            self._upsert(cursor, table, names, group)
        self._delete(cursor, table, removed)
        outcomes: dict[str, Outcome] = {
            record.key: Ok(
                record.key, created=False if record.deleted else record.key not in before
            )
            for record in records
        }
        if table.has_doubles and kept:
            after = self._present(cursor, table, [record.key for record in kept])
            for record in kept:
                if record.key not in after:
                    outcomes[record.key] = table.doubled()
        return outcomes

    def _upsert(
        self, cursor: Any, table: Table, names: Sequence[str], records: Sequence[Record]
    ) -> None:
        given, quoted = self.settings, self._quoted
        columns = [given.key_column, *names]
        if given.deleted_column:
            columns.append(given.deleted_column)
        columns.append(given.version_column)  # last: what goes before compares with the old one
        rows = [self._row(table, record, names) for record in records]
        start = f"INSERT INTO {quoted(given.table)} ({', '.join(map(quoted, columns))}) VALUES "  # noqa: S608
        changed = [quoted(name) for name in columns[1:]]
        key, version = quoted(given.key_column), quoted(given.version_column)
        if self._mysql:
            # Another unique key may be the duplicate one: that row is somebody else's.
            takes = (
                f"CAST({key} AS BINARY) = CAST(VALUES({key}) AS BINARY) "
                f"AND ({version} IS NULL OR VALUES({version}) >= {version})"
            )
            sets = ", ".join(f"{name} = IF({takes}, VALUES({name}), {name})" for name in changed)
            end = f" ON DUPLICATE KEY UPDATE {sets}".encode()
            for values in mysql_values.statements(self._open(), rows):
                cursor.execute(cast(str, start.encode() + b",".join(values) + end))
            return
        old = f"{quoted(given.table)}.{version}"
        sets = ", ".join(f"{name} = excluded.{name}" for name in changed)
        places = ", ".join(["%s"] * len(columns))
        cursor.executemany(
            f"{start}({places}) ON CONFLICT ({key}) DO UPDATE SET {sets} "
            f"WHERE {old} IS NULL OR excluded.{version} >= {old}",
            rows,
        )

    def _row(self, table: Table, record: Record, names: Sequence[str]) -> list[Any]:
        given = self.settings
        row = [table.key(record.key), *(table.value(record.fields[name]) for name in names)]
        if given.deleted_column:
            row.append(int(record.deleted))
        return [*row, record.version]

    def _delete(self, cursor: Any, table: Table, records: Sequence[Record]) -> None:
        given, quoted = self.settings, self._quoted
        version = quoted(given.version_column)
        each = f"({quoted(given.key_column)} = %s AND ({version} IS NULL OR {version} <= %s))"
        for some in chunks(records, _KEYS_AT_ONCE):
            which = " OR ".join([each] * len(some))
            values = [value for r in some for value in (table.key(r.key), r.version)]
            cursor.execute(f"DELETE FROM {quoted(given.table)} WHERE {which}", values)  # noqa: S608

    def _present(self, cursor: Any, table: Table, keys: Collection[str]) -> set[str]:
        column = self._quoted(self.settings.key_column)
        return {str(key) for (key,) in self._rows(cursor, column, table, keys)}

    def _rows(
        self, cursor: Any, columns: str, table: Table, keys: Collection[str]
    ) -> Iterable[tuple[Any, ...]]:
        given = self.settings
        usable = [table.key(key) for key in keys if table.takes_key(key)]
        for some in chunks(usable, _KEYS_AT_ONCE):
            places = ", ".join(["%s"] * len(some))
            cursor.execute(
                f"SELECT {columns} FROM {self._quoted(given.table)} "  # noqa: S608
                f"WHERE {self._quoted(given.key_column)} IN ({places})",
                some,
            )
            yield from cursor.fetchall()

    # -- the connection --------------------------------------------------------------------------
    def _open(self) -> BaseDatabaseWrapper:
        return self._handler["default"]

    def _table(self) -> Table:
        """The table's columns. Raises DatabaseError; replaces a connection that is too old."""
        connection = self._open()
        connection.close_if_unusable_or_obsolete()
        if self._known is None:
            given = self.settings
            self._known = read_table(connection, given.table, given.key_column)
        return self._known

    def _verdict(self, error: DatabaseError, size: int) -> Outcome:
        if sql_errors.is_unknown_column(error):
            self._known = None  # the table was changed since it was read
        return sql_errors.verdict(error, size)

    def _error(self, error: DatabaseError) -> Exception:
        text = self.clean(sql_errors.message(error))
        self._drop()
        if sql_errors.is_credentials(error):
            return CredentialsRefused(f"The database refuses the credentials: {text}")
        if sql_errors.is_setup(error):
            return InvalidInput(f"The table {self.settings.table} cannot be used: {text}", "table")
        return Unavailable(f"The database cannot be reached: {text}")

    def _roll_back(self) -> None:
        try:
            with self._open().cursor() as cursor:
                cursor.execute("ROLLBACK")
        except DatabaseError:
            self._drop()

    def _drop(self) -> None:
        """The next call connects anew."""
        with suppress(DatabaseError):
            self._open().close()

    def _quoted(self, name: str) -> str:
        return str(self._open().ops.quote_name(name))
