"""Mappings: values of a row into fields of a CRM, one line for each field.

    LastName = name
    Email = extra.email                 a property of a column that holds JSON
    Birthday = born_at.date             the day of a time, as a field for a date takes it
    Company = extra.company or "-"      the first that is not empty
    LeadSource = "landing page"         a constant: text, a number, true, false
    Note = extra.message or null        cleared in the CRM when it is empty here

A field whose every choice is empty is not sent, so that the CRM keeps what it has.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import lru_cache
from typing import Any

import msgspec
from django.utils.translation import gettext as _

from msgplatform.core.errors import InvalidInput

MAX_RULES = 200
MAX_FIELD = 128
_MINUTE = timedelta(minutes=1)
_MAX_NUMBER_LENGTH = 30  # a longer constant is written as text
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s"]+')
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")  # as JSON has them
_DIGITS = re.compile(r"-?[\d.]+")
# Constants that are written as words.
_LITERALS = {"true": True, "false": False, "null": None}
_PATH = re.compile(r"\w[\w-]*(\.[\w-]+)*")


class Path(msgspec.Struct, frozen=True):
    """A column, and the way into the JSON that it holds."""

    column: str
    inside: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ".".join((self.column, *self.inside))


class Constant(msgspec.Struct, frozen=True):
    value: Any


class Rule(msgspec.Struct, frozen=True):
    """One line: the CRM's field, and the choices for its value."""

    field: str
    choices: Sequence[Path | Constant]
    line: int


class FieldMapping(msgspec.Struct, frozen=True):
    """The rules of one policy."""

    rules: Sequence[Rule]

    @property
    def fields(self) -> list[str]:
        """The names of the CRM's fields."""
        return [rule.field for rule in self.rules]

    def check_columns(self, columns: Collection[str]) -> None:
        """Raises InvalidInput for a column that the source does not have."""
        for rule in self.rules:
            for choice in rule.choices:
                if isinstance(choice, Path) and choice.column not in columns:
                    raise InvalidInput(
                        _("Line %(line)d: the source has no column %(column)s. It has: %(known)s.")
                        % {"line": rule.line, "column": choice.column,
                           "known": ", ".join(sorted(columns))},
                        "mapping",
                    )  # fmt: skip

    def apply(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The CRM's fields from a row's values by column.

        Raises InvalidInput, naming the CRM's field, for a value that cannot be sent.
        """
        decoded_columns: dict[str, Any] = {}
        fields: dict[str, Any] = {}
        for rule in self.rules:
            for choice in rule.choices:
                # The first choice that is not empty is sent. A constant is never empty.
                if isinstance(choice, Constant):
                    fields[rule.field] = choice.value
                    break
                try:
                    value = _at(choice, values, decoded_columns)
                except ValueError as error:
                    raise InvalidInput(f"{choice}: {error}", rule.field) from None
                # After an empty value the next choice counts. Without a further choice the field is
                # not sent, and the CRM keeps its value.
                if value is not None and value != "":
                    fields[rule.field] = value
                    break
        return fields


@lru_cache(maxsize=256)  # a poller asks for each page of rows
def parse(text: str) -> FieldMapping:
    """A mapping from its lines. Raises InvalidInput that names the line."""
    rules: list[Rule] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        field, equals, right = (part.strip() for part in line.partition("="))
        if not equals or not field or not right:
            raise _wrong(number, _("write it as LastName = name"))
        if len(field) > MAX_FIELD:
            raise _wrong(number, _("a field's name has at most %d characters") % MAX_FIELD)
        words = _WORD.findall(right)
        if _WORD.sub("", right).strip():
            raise _wrong(number, _("a quotation mark is missing"))
        if len(words) % 2 == 0 or any(word != "or" for word in words[1::2]):
            raise _wrong(number, _("join choices by “or”, and write text in quotation marks"))
        rules.append(Rule(field, tuple(_choice(word, number) for word in words[::2]), number))
    if not rules:
        raise InvalidInput(_("Write at least one line, such as LastName = name."), "mapping")
    if len(rules) > MAX_RULES:
        raise InvalidInput(_("Use at most %d lines.") % MAX_RULES, "mapping")
    lines: dict[str, int] = {}
    for rule in rules:
        if rule.field in lines:
            message = _("Line %(line)d: %(field)s is set in line %(first)d already.")
            values = {"line": rule.line, "field": rule.field, "first": lines[rule.field]}
            raise InvalidInput(message % values, "mapping")
        lines[rule.field] = rule.line
    return FieldMapping(tuple(rules))


def _choice(word: str, line: int) -> Path | Constant:
    if word.startswith('"'):
        try:
            return Constant(msgspec.json.decode(word))
        except msgspec.DecodeError:
            raise _wrong(line, _("%s is no text as JSON writes it") % word) from None
    if word in _LITERALS:
        return Constant(_LITERALS[word])
    if _DIGITS.fullmatch(word):
        if not _NUMBER.fullmatch(word) or len(word) > _MAX_NUMBER_LENGTH:
            raise _wrong(line, _("%s is no number; a text stands in quotation marks") % word)
        return Constant(msgspec.json.decode(word))
    if not _PATH.fullmatch(word):
        raise _wrong(line, _("%s is neither a column nor a constant") % word)
    column, *inside = word.split(".")
    return Path(column, tuple(inside))


def _wrong(line: int, why: str) -> InvalidInput:
    return InvalidInput(_("Line %(line)d: %(why)s.") % {"line": line, "why": why}, "mapping")


def _at(path: Path, values: Mapping[str, Any], decoded_columns: dict[str, Any]) -> Any:
    """The value at a path, as JSON can carry it. Raises ValueError.

    `decoded_columns` is a cache: several lines of a mapping may use the same column.
    """
    value = values.get(path.column)
    if isinstance(value, datetime) and path.inside == ("date",):
        value = value.date()
    elif path.inside:
        if path.column not in decoded_columns:
            if isinstance(value, str | bytes):
                try:
                    value = msgspec.json.decode(value) if value else None
                except (msgspec.DecodeError, RecursionError):
                    raise ValueError(_("the column does not hold JSON")) from None
            decoded_columns[path.column] = value
        value = decoded_columns[path.column]
        for name in path.inside:
            value = value.get(name) if isinstance(value, Mapping) else None
    # Nearly every value has one of these types: no further checks.
    if type(value) in (str, int, float, bool, type(None)):
        return value
    # JSON has no times and no decimals: CRMs take both as text.
    if isinstance(value, datetime):
        offset = value.utcoffset()
        # Before standard time a zone's offset has seconds, and times in CRMs (RFC 3339) have none.
        if offset and offset % _MINUTE:
            value = value.replace(tzinfo=timezone(round(offset / _MINUTE) * _MINUTE))
        text = value.isoformat()
        return f"{text[:-6]}Z" if text.endswith("+00:00") else text
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")  # 0.00000000, not 0E-8
    if isinstance(value, timedelta):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            raise ValueError(_("the value is binary, not text")) from None
    return value
