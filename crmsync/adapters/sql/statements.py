"""The statements of one transaction on a CRM's table."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from django.utils.translation import gettext_noop

from crmsync.adapters.base import AdapterSettings, Record, Stored
from crmsync.adapters.outcomes import Ok, Outcome
from crmsync.adapters.sql.table import Table
from msgplatform.core.data import chunks, engines

_KEYS_AT_ONCE = 500


class SqlSettings(AdapterSettings, frozen=True, kw_only=True):
    __doc__ = gettext_noop("`deleted_column`: 1 for deleted records, else 0; '': rows are deleted.")

    table: str
    key_column: str = "id"
    version_column: str = "version"
    deleted_column: str = ""

    @property
    def own_columns(self) -> tuple[str, str, str]:
        """The columns that hold no field of a record; '' for one that the table does not have."""
        return self.key_column, self.version_column, self.deleted_column


class Statements:
    """All methods raise DatabaseError."""

    def __init__(self, cursor: Any, table: Table, settings: SqlSettings) -> None:
        self.cursor, self.table, self.settings = cursor, table, settings
        self._engine = engines.of_connection(table.connection)

    def read(self, keys: Collection[str]) -> dict[str, Stored]:
        settings, table = self.settings, self.table
        names = list(table.columns)
        rows_by_key: dict[str, Stored] = {}
        # The driver returns bits as bytes and characters as text, of which a 0 would be true.
        columns = ", ".join(
            f"{self._quote(name)} + 0" if name == settings.deleted_column else self._quote(name)
            for name in names
        )
        for values in self._rows(columns, keys):
            row = dict(zip(names, values, strict=True))
            key = str(row[settings.key_column])
            rows_by_key[key] = Stored(
                key,
                {name: value for name, value in row.items() if name not in settings.own_columns},
                bool(settings.deleted_column and row[settings.deleted_column]),
                row[settings.version_column],
            )
        return {key: rows_by_key[key] for key in keys if key in rows_by_key}

    def write(self, records: Sequence[Record]) -> dict[str, Outcome]:
        """Return an Outcome for each record, valid once the transaction is committed."""
        settings, table = self.settings, self.table
        key_column = self._quote(settings.key_column)
        keys = [record.key for record in records]
        present_keys = {str(key) for (key,) in self._rows(key_column, keys)}
        # A deletion that lacks a required column gets a statement of its own: the database would
        # refuse the INSERT even where the row exists.
        required_names = {name for name, field in table.columns.items() if field.required}
        required_names.difference_update(settings.own_columns)
        deletions = [
            r
            for r in records
            if r.deleted and not (settings.deleted_column and required_names <= r.fields.keys())
        ]
        self._delete(deletions)
        stored_keys = {record.key for record in records} - {record.key for record in deletions}
        upserts = [record for record in records if record.key in stored_keys]
        # Write rows in the order of keys, so that two writers lock them in the same order. Rows
        # with the same columns share an INSERT.
        upserts.sort(key=lambda record: record.key)
        shapes: dict[tuple[str, ...], list[Record]] = {}
        for record in upserts:
            shapes.setdefault(tuple(sorted(record.fields)), []).append(record)
        for names, group in shapes.items():
            self._upsert(names, group)
        outcomes: dict[str, Outcome] = {
            record.key: Ok(
                record.key, created=False if record.deleted else record.key not in present_keys
            )
            for record in records
        }
        if table.can_find_other_row and upserts:
            columns = f"{key_column}, {self._quote(settings.version_column)}"
            rows = self._rows(columns, [record.key for record in upserts])
            versions = {str(key): version for key, version in rows}
            for record in upserts:
                # The upsert may have changed another row even where the key's row exists.
                version = versions.get(record.key)
                if version is None or int(version) < record.version:
                    outcomes[record.key] = table.duplicate_row()
        return outcomes

    def _upsert(self, names: Sequence[str], records: Sequence[Record]) -> None:
        settings, quote = self.settings, self._quote
        columns = [settings.key_column, *names]
        if settings.deleted_column:
            columns.append(settings.deleted_column)
        columns.append(settings.version_column)  # last: the other columns compare the old version
        table = self.table
        rows = [
            [
                table.key(record.key),
                *table.values(names, record.fields),
                *([int(record.deleted)] if settings.deleted_column else ()),
                record.version,
            ]
            for record in records
        ]
        table_name, *quoted_names = map(quote, (settings.table, *columns))
        start = f"INSERT INTO {table_name} ({', '.join(quoted_names)}) VALUES "  # noqa: S608
        clause = self._engine.keep_newer(table_name, quoted_names, table.key_is_number)
        self._engine.insert(self.cursor, start, rows, clause)

    def _delete(self, records: Sequence[Record]) -> None:
        """Delete the rows, or mark them where there is a column for it; newer rows stay."""
        settings, quote = self.settings, self._quote
        table, key, version = map(
            quote, (settings.table, settings.key_column, settings.version_column)
        )
        for page in chunks(records, _KEYS_AT_ONCE):
            keys = [self.table.key(record.key) for record in page]
            # The index finds the row; bytes are compared: a collation may treat other keys as
            # equal.
            is_key = f"{key} = %s AND {self._exact(key)} = {self._exact('%s')}"
            row_condition = f"({is_key} AND ({version} IS NULL OR {version} <= %s))"
            condition = " OR ".join([row_condition] * len(page))
            rows = [(k, k, r.version) for k, r in zip(keys, page, strict=True)]
            values = [value for row in rows for value in row]
            if not settings.deleted_column:
                self.cursor.execute(f"DELETE FROM {table} WHERE {condition}", values)  # noqa: S608
                continue
            cases = f"WHEN {self._exact('%s')} THEN %s " * len(page)
            versions = [value for k, _same, number in rows for value in (k, number)]
            self.cursor.execute(
                f"UPDATE {table} SET {quote(settings.deleted_column)} = 1, "  # noqa: S608
                f"{version} = CASE {self._exact(key)} {cases}END WHERE {condition}",
                [*versions, *values],
            )

    def _exact(self, key: str) -> str:
        """A key as bytes of one character set, whatever those of the column are."""
        if self.table.key_is_number:
            return key
        return self._engine.exact(key)

    def _rows(self, columns: str, keys: Collection[str]) -> Iterable[tuple[Any, ...]]:
        settings, table = self.settings, self.table
        usable = [table.key(key) for key in keys if table.takes_key(key)]
        for page in chunks(usable, _KEYS_AT_ONCE):
            places = ", ".join(["%s"] * len(page))
            self.cursor.execute(
                f"SELECT {columns} FROM {self._quote(settings.table)} "  # noqa: S608
                f"WHERE {self._quote(settings.key_column)} IN ({places})",
                page,
            )
            yield from self.cursor.fetchall()

    def _quote(self, name: str) -> str:
        return str(self.table.connection.ops.quote_name(name))
