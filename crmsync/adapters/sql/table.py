"""A table as the database describes it, and the check of records against it."""

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Any

import msgspec
from django.db import DatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.translation import gettext as _

from crmsync.adapters.base import Field, Record
from crmsync.adapters.outcomes import Invalid
from msgplatform.core.data import engines

# Integers of databases have at most 64 bits; those of a server may be without a sign.
_BIGGEST, _BIGGEST_UNSIGNED = 2**63, 2**64
# SQLite keeps the type as it was written, such as `VARCHAR(40)`.
_DECLARED = re.compile(r"char[a-z ]*\( *(\d+) *\)", re.IGNORECASE)
_SURROGATE = re.compile("[\ud800-\udfff]")
_NUMBER = re.compile("0|-?[1-9][0-9]*")
_PLAIN = frozenset({str, int, float, bool})


class Table(msgspec.Struct, frozen=True):
    """`other_unique` are the columns of unique keys other than that of `key_column`: a row that is
    refused for one of them belongs to another record."""

    name: str
    connection: BaseDatabaseWrapper
    key_column: str
    columns: Mapping[str, Field]
    not_null: frozenset[str]
    key_is_number: bool
    key_is_char: bool  # of a server: it returns no blanks at the end
    key_is_unique: bool
    other_unique: tuple[str, ...]
    # Columns that hold times → "timestamp", "datetime" or "date".
    time_kinds: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def can_find_other_row(self) -> bool:
        """True if an upsert may find another record's row: by another unique key, or by a key that
        the column's collation treats as equal."""
        return not self.key_is_number or (self._finds_by_any_key and bool(self.other_unique))

    @property
    def _finds_by_any_key(self) -> bool:
        return engines.of_connection(self.connection).finds_rows_by_any_key

    def problem(self, record: Record) -> Invalid | None:
        """The reason why the table cannot take the record, as far as it shows beforehand."""
        if not self.takes_key(record.key):
            text = (
                _("The key %(key)r is no number as the column %(column)s writes it.")
                if self.key_is_number
                else _(
                    "The column %(column)s would lose the blanks at the end of the key %(key)r. "
                    "Make the column a VARCHAR with room for the key."
                )
            )
            return Invalid("", text % {"key": record.key, "column": self.key_column})
        for name, value in record.fields.items():
            field = self.columns.get(name)
            if field is None:
                text = _("The table %(table)s has no column %(name)s.")
                return Invalid(name, text % {"table": self.name, "name": name})
            if fault := self._fault(field, value):
                return Invalid(name, fault)
        return None

    def _fault(self, field: Field, value: Any) -> str:
        name = field.name
        if value is None and name in self.not_null:
            return _("The column %s cannot be empty.") % name
        if isinstance(value, str):
            if field.max_length and len(value) > field.max_length:
                max_length = field.max_length
                return _(
                    "The value for %(name)s has %(count)s characters; %(most)s are allowed."
                ) % {"name": name, "count": len(value), "most": max_length}
            # A single surrogate cannot be encoded: the driver would fail for the whole batch.
            if not value.isascii() and _SURROGATE.search(value):
                return _("The value for %s is no valid text.") % name
        # NaN and infinity are no SQL numbers.
        elif isinstance(value, float) and not math.isfinite(value):
            return _("The value for %s is no finite number.") % name
        elif isinstance(value, int) and not -_BIGGEST <= value < _BIGGEST:
            is_server = engines.of_connection(self.connection).is_server
            if not (is_server and 0 <= value < _BIGGEST_UNSIGNED):
                return _("The number for %s is too large.") % name
        return ""

    def duplicate_row(self) -> Invalid:
        if not self.other_unique or not self._finds_by_any_key:
            return Invalid("", _("Another row has a key that the table takes for the same."))
        # If there are several unique keys, the database does not say which one it was.
        text = _("Another row has the same value in a unique column (%s).")
        name = self.other_unique[0] if len(self.other_unique) == 1 else ""
        return Invalid(name, text % ", ".join(self.other_unique))

    def takes_key(self, key: str) -> bool:
        """True if the column can hold the key. A number column would take 007 as 7. A server cuts
        blanks at the end: all in a CHAR, and those beyond the length of another column."""
        if self.key_is_number:
            return _NUMBER.fullmatch(key) is not None
        if not key.endswith(" ") or not engines.of_connection(self.connection).is_server:
            return True
        field = self.columns.get(self.key_column)
        return not self.key_is_char and (field is None or len(key) <= field.max_length)

    def key(self, key: str) -> str | int:
        return int(key) if self.key_is_number else key

    def values(self, names: Sequence[str], fields: Mapping[str, Any]) -> list[Any]:
        """The values of these columns in the form that `value` gives them."""
        times, plain = self.time_kinds, _PLAIN
        return [
            value
            if type(value := fields[name]) in plain and name not in times
            else self.value(name, value)
            for name in names
        ]

    def value(self, name: str, value: Any) -> Any:
        """The value of a column in a form that the driver takes: a list or a mapping becomes JSON,
        and a time with a zone becomes what the column's type holds."""
        if isinstance(value, str) and (kind := self.time_kinds.get(name)):
            try:
                moment = datetime.fromisoformat(value)
                # A TIMESTAMP is a moment, written in the session's zone, UTC. A DATETIME or a DATE
                # shows the clock and the calendar at the source.
                if moment.tzinfo is not None and kind == "timestamp":
                    moment = moment.astimezone(UTC)
            except (ValueError, OverflowError):
                return value  # the database says what is wrong with it
            if kind == "date":
                return moment.date().isoformat()
            return moment.replace(tzinfo=None).isoformat(" ")
        if value is None or type(value) in _PLAIN:
            return value
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
        descriptions = connection.introspection.get_table_description(cursor, name)
        constraints = connection.introspection.get_constraints(cursor, name)
        primary = connection.introspection.get_primary_key_columns(cursor, name)
        if not descriptions:
            raise DatabaseError(f"no such table: {name}")
        kinds: dict[str, str] = {}  # Django's names of the columns' types
        for column in descriptions:
            with suppress(KeyError):  # a type that Django does not know
                get_type = connection.introspection.get_field_type
                kinds[column.name] = str(get_type(column.type_code, column))
    unique = {tuple(c["columns"]) for c in constraints.values() if c["unique"]}
    if primary:
        unique.add(tuple(primary))
    columns: dict[str, Field] = {}
    for column in descriptions:
        kind = kinds.get(column.name, "")
        size = 0
        if kind in ("CharField", "TextField"):
            # SQLite gives the declared type, and does not enforce its length.
            size_match = _DECLARED.search(str(column.type_code))
            size = int(size_match[1] if size_match else column.display_size or 0)
        is_required = not column.null_ok and column.default is None
        columns[column.name] = Field(column.name, kind, is_required, True, size)
    other_unique = {name for key in unique if key != (key_column,) for name in key} - {key_column}
    return Table(
        name=name,
        connection=connection,
        key_column=key_column,
        columns=columns,
        not_null=frozenset(c.name for c in descriptions if not c.null_ok),
        key_is_number=any(word in kinds.get(key_column, "") for word in ("Integer", "AutoField")),
        key_is_char=any(
            c.name == key_column and getattr(c, "data_type", "") == "char" for c in descriptions
        ),
        key_is_unique=(key_column,) in unique,
        other_unique=tuple(sorted(other_unique)),
        time_kinds=engines.of_connection(connection).time_kinds(descriptions),
    )
