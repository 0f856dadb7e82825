"""What a database says of a table, and which records it cannot take."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import msgspec
from django.db import DatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper

from crmsync.adapters.base import Field, Record
from crmsync.adapters.outcomes import Invalid

_BIGGEST = 2**63
_DECLARED = re.compile(r"char[a-z ]*\( *(\d+) *\)", re.IGNORECASE)


@dataclass(frozen=True)
class Table:
    """`required` columns take no NULL. `others` are the unique keys beside that of the key: a row
    that is refused for one of them belongs to another record."""

    name: str
    connection: BaseDatabaseWrapper
    columns: Mapping[str, Field]
    required: frozenset[str]
    key_is_number: bool
    key_is_unique: bool
    others: tuple[str, ...]

    @property
    def has_doubles(self) -> bool:
        """Whether an upsert may find a row that is not this record's: by another unique key, or by
        a key that the column's collation takes for the same. Only MySQL does so silently."""
        return self.connection.vendor == "mysql" and bool(self.others or not self.key_is_number)

    def problem(self, record: Record) -> Invalid | None:
        """What can be seen before anything is sent."""
        if not self.takes_key(record.key):
            return Invalid("", f"The key {record.key!r} is no number.")
        for name, value in record.fields.items():
            field = self.columns.get(name)
            if field is None:
                return Invalid(name, f"The table {self.name} has no column {name}.")
            if fault := self._fault(field, value):
                return Invalid(name, fault)
        return None

    def _fault(self, field: Field, value: Any) -> str:
        name = field.name
        if value is None and name in self.required:
            return f"The column {name} cannot be empty."
        if isinstance(value, str):
            if field.max_length and len(value) > field.max_length:
                most = field.max_length
                return f"The value for {name} has {len(value)} characters; {most} are allowed."
            if not value.isascii() and not _is_text(value):
                return f"The value for {name} is no valid text."
        elif isinstance(value, float) and not math.isfinite(value):
            return f"The value for {name} is no finite number."
        elif isinstance(value, int) and not -_BIGGEST <= value < _BIGGEST:
            return f"The number for {name} is too large."
        return ""

    def doubled(self) -> Invalid:
        names = ", ".join(self.others)
        return Invalid(
            self.others[0] if len(self.others) == 1 else "",
            f"Another row has the same value in a unique column{f' ({names})' if names else ''}.",
        )

    def takes_key(self, key: str) -> bool:
        return not self.key_is_number or (key.isascii() and key.lstrip("-").isdigit())

    def key(self, key: str) -> str | int:
        return int(key) if self.key_is_number else key

    def value(self, value: Any) -> Any:
        """As the driver takes it: a list or a mapping becomes JSON."""
        if isinstance(value, datetime):
            return self.connection.ops.adapt_datetimefield_value(value)
        if isinstance(value, date):
            return value.isoformat()
        if isinstance(value, list | tuple | dict):
            return msgspec.json.encode(value).decode()
        return value


def read_table(connection: BaseDatabaseWrapper, name: str, key_column: str) -> Table:
    """Raises DatabaseError, also when there is no such table."""
    with connection.cursor() as cursor:
        described = connection.introspection.get_table_description(cursor, name)
        constraints = connection.introspection.get_constraints(cursor, name)
        primary = connection.introspection.get_primary_key_columns(cursor, name)
        if not described:
            raise DatabaseError(f"no such table: {name}")
        kinds = {column.name: _kind(connection, column) for column in described}
    unique = {tuple(c["columns"]) for c in constraints.values() if c["unique"]}
    if primary:
        unique.add(tuple(primary))
    columns: dict[str, Field] = {}
    for column in described:
        kind = kinds[column.name]
        size = _length(column) if kind in ("CharField", "TextField") else 0
        is_required = not column.null_ok and column.default is None
        columns[column.name] = Field(column.name, kind, is_required, True, size)
    others = {name for key in unique if key != (key_column,) for name in key} - {key_column}
    return Table(
        name,
        connection,
        columns,
        frozenset(c.name for c in described if not c.null_ok),
        any(word in kinds.get(key_column, "") for word in ("Integer", "AutoField")),
        (key_column,) in unique,
        tuple(sorted(others)),
    )


def _kind(connection: BaseDatabaseWrapper, column: Any) -> str:
    """Django's name of the column's type, '' for a type that it does not know."""
    try:
        return str(connection.introspection.get_field_type(column.type_code, column))
    except KeyError:
        return ""


def _length(column: Any) -> int:
    """The most characters; SQLite gives the declared type, and does not enforce it."""
    declared = _DECLARED.search(str(column.type_code))
    return int(declared[1] if declared else column.display_size or 0)


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
