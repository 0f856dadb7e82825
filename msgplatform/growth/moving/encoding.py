"""A row as the file has it: values by field, other rows by their names instead of their numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.core.exceptions import ObjectDoesNotExist, ValidationError
from django.db import models

from msgplatform.core.errors import InvalidInput, Undecryptable
from msgplatform.core.fields import EncryptedTextField, Unreadable
from msgplatform.core.flows.moving import MovedTable

Row = dict[str, Any]


class UnknownName(InvalidInput):
    """A row refers to another one that this cell does not have."""


def fields_of(table: MovedTable) -> Iterator[Any]:
    """The fields that move. Times of creation are those of the cell."""
    for field in table.model._meta.concrete_fields:
        is_automatic = getattr(field, "auto_now", False) or getattr(field, "auto_now_add", False)
        if not (field.primary_key or is_automatic or field.name in table.left_out):
            yield field


def encode(table: MovedTable, row: Any) -> Row:
    """Raises Undecryptable for a secret that no key of ENCRYPTION_KEY decrypts."""
    values = {field.name: _encode_value(table, row, field) for field in fields_of(table)}
    for many in table.model._meta.many_to_many:
        values[many.name] = sorted(getattr(row, many.name).values_list("name", flat=True))
    return values


def _encode_value(table: MovedTable, row: Any, field: Any) -> Any:
    if field.is_relation:
        other = getattr(row, field.name)
        return None if other is None else other.name
    value = field.value_from_object(row)
    if isinstance(value, Unreadable):
        raise Undecryptable(
            f"the {field.name} of {table.name} {row} cannot be decrypted: add its key to "
            "ENCRYPTION_KEY, or set it again"
        )
    # As text: a secret under the first key, a time as ISO 8601 has it.
    if value is not None and isinstance(field, EncryptedTextField | models.DateTimeField):
        return field.value_to_string(row)
    return value


def decode(table: MovedTable, values: Mapping[str, Any], known: Mapping[str, Any]) -> Any:
    """A row that is not stored, with its fields checked. `known` maps names of systems to rows that
    will be stored before it. Raises InvalidInput, UnknownName."""
    fields = list(fields_of(table))
    many_names = {many.name for many in table.model._meta.many_to_many}
    names = {field.name for field in fields} | many_names
    if names != values.keys():
        different = ", ".join(sorted(names ^ values.keys()))
        raise InvalidInput(f"a row of {table.name} has other fields than this release: {different}")
    row = table.model()
    try:
        for field in fields:
            value = values[field.name]
            if field.is_relation:
                setattr(row, field.name, _other(field, value, known))
            else:
                setattr(row, field.attname, field.to_python(value))
        row.clean_fields(exclude=[field.name for field in fields if field.is_relation])
    except ValidationError as error:
        messages = {"value": error.messages}
        if hasattr(error, "error_dict"):
            messages = error.message_dict
        text = "; ".join(f"{name}: {errors[0]}" for name, errors in messages.items())
        raise InvalidInput(f"a row of {table.name} is not usable: {text}") from None
    return row


def names_of_many(table: MovedTable, values: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Field → the rows that it joins, of fields that join many. Raises UnknownName."""
    return {
        many.name: [_other(many, name, {}) for name in values[many.name]]
        for many in table.model._meta.many_to_many
    }


def differences(table: MovedTable, row: Any, stored: Any) -> list[str]:
    """The names of the fields in which two rows differ."""
    return [
        field.name
        for field in fields_of(table)
        if field.value_from_object(row) != field.value_from_object(stored)
    ]


def _other(field: Any, name: str | None, known: Mapping[str, Any]) -> Any:
    if name is None:
        return None
    model = field.related_model
    if (row := known.get(f"{model._meta.label_lower}:{name}")) is not None:
        return row
    try:
        return model._default_manager.get(name=name)
    except ObjectDoesNotExist:
        kind = model._meta.verbose_name
        raise UnknownName(f"This cell has no {kind} named {name}; make it first.") from None
