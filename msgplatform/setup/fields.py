"""The body that describes a whole object, and its fields. A field takes only the JSON type that the
schema names.

REST framework's own fields convert values: they take "5" as a number, 1 as true, and a time without
a zone as a time in the server's zone.
"""

from collections.abc import Hashable, Mapping
from datetime import datetime
from functools import cache
from types import MappingProxyType
from typing import Any, cast

from django.db import models
from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.relations import MANY_RELATION_KWARGS

from msgplatform.core import durations
from msgplatform.core.characters import NO_CONTROLS, has_controls
from msgplatform.models import Biz


def check_known(serializer: serializers.Serializer[Any], data: Any) -> None:
    """Raises ValidationError if the body has an unknown field."""
    if isinstance(data, Mapping) and (unknown := sorted(data.keys() - serializer.fields.keys())):
        raise serializers.ValidationError({name: ["There is no such field."] for name in unknown})


class TextField(serializers.CharField):
    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        if has_controls(data, has_lines=True):
            raise serializers.ValidationError(NO_CONTROLS, "invalid")
        return super().to_internal_value(data)


class WordField(TextField, serializers.SlugField):
    """Letters, digits, hyphens and underscores."""


class FlagField(serializers.BooleanField):
    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


class WholeNumberField(serializers.IntegerField):
    """A number without a fraction: 5, and 5.0 as well."""

    def to_internal_value(self, data: Any) -> int:
        if isinstance(data, bool | str):
            self.fail("invalid")
        return super().to_internal_value(data)


class NumberField(serializers.FloatField):
    """A number that has a place in a float. Whole ones stay whole."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, bool) or not isinstance(data, int | float):
            self.fail("invalid")
        try:
            float(data)
        except OverflowError:
            self.fail("invalid")
        return data


# The OpenAPI document names only the number: for a union type generators would add a class.
@extend_schema_field({"type": "number"})
class DurationField(NumberField):
    """Seconds as a number, or a text with a unit: "5 s", "30 min", "2 h", "1 d". Shown as a
    number."""

    note = 'A text with a unit is taken, too: "5 s", "30 min", "2 h", "1 d".'
    default_error_messages = {
        "invalid": 'Write a number of seconds, or a text with a unit such as "5 s", "30 min", '
        '"2 h" or "1 d".'
    }

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, str):
            return super().to_internal_value(data)
        try:
            return durations.seconds(data, needs_unit=True)
        except ValueError:
            self.fail("invalid")


class MomentField(serializers.DateTimeField):
    """A time with its zone."""

    def enforce_timezone(self, value: datetime) -> datetime:
        if timezone.is_naive(value):
            self.fail("invalid", format="2026-11-20T08:00:00Z")
        return super().enforce_timezone(value)


@extend_schema_field({"type": "string", "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?$"})
class ClockField(serializers.TimeField):
    """A time of day. Another field names its zone, and an offset is refused."""

    input_formats = ("%H:%M:%S", "%H:%M")


class TextListField(serializers.ListField):
    """A list of texts; the model checks them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(child=TextField(), required=False, allow_null=True, **options)


@extend_schema_field({"type": "array", "items": {"type": "number", "minimum": 0}})
class WaitsField(serializers.ListField):
    """Delays, in seconds or as texts with a unit."""

    note = DurationField.note
    child = DurationField()

    def to_representation(self, data: Any) -> list[Any]:
        """The delays, without what a statement has stored and is no number: an alert names that."""
        waits = data if isinstance(data, list) else []
        return super().to_representation([wait for wait in waits if isinstance(wait, int | float)])


@extend_schema_field({"type": "object", "additionalProperties": {}})
class ObjectField(serializers.JSONField):
    """A JSON object; the model, or the resource, checks it."""

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, dict):
            raise serializers.ValidationError('Write an object: {"name": "value"}.')
        return super().to_internal_value(data)


class SecretTextField(TextField):
    """A text that is written only: left out, the stored one stays."""

    note = "Never shown: left out, the stored one stays."

    def __init__(self, **options: Any) -> None:
        super().__init__(write_only=True, required=False, allow_null=True, **options)


class NamesField(serializers.ManyRelatedField):
    """Several things, by their names; a list and nothing else."""

    def to_internal_value(self, data: Any) -> list[Any]:
        if not isinstance(data, list):
            self.fail("not_a_list", input_type=type(data).__name__)
        return list(super().to_internal_value(data))


class NamedField(serializers.SlugRelatedField[Any]):
    """Another object, by its name. If the serializer's context has `systems`, only these business
    systems can be named."""

    default_error_messages = {"does_not_exist": "There is nothing named {value}; create it first."}

    def __init__(self, **options: Any) -> None:
        super().__init__(slug_field="name", **options)

    def get_queryset(self) -> Any:
        rows: Any = super().get_queryset()
        systems = self.context.get("systems")
        return rows.filter(name__in=systems) if systems and rows.model is Biz else rows

    @classmethod
    def many_init(cls, *args: Any, **options: Any) -> NamesField:
        """The field of `many=True`."""
        list_options = {name: options[name] for name in MANY_RELATION_KWARGS if name in options}
        list_options["allow_null"] = options.pop("allow_null", False)  # the list, not its names
        return NamesField(child_relation=cls(*args, **options), **list_options)

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, str) or "\x00" in data:
            self.fail("invalid")
        return super().to_internal_value(data)


# For ModelSerializer.
OF_MODELS = {
    **serializers.ModelSerializer.serializer_field_mapping,
    models.BooleanField: FlagField,
    models.CharField: TextField,
    models.DateTimeField: MomentField,
    models.FloatField: NumberField,
    models.IntegerField: WholeNumberField,
    models.PositiveIntegerField: WholeNumberField,
    models.PositiveSmallIntegerField: WholeNumberField,
    models.SlugField: WordField,
    models.TextField: TextField,
    models.TimeField: ClockField,
}


class WholeSerializer(serializers.ModelSerializer[Any]):
    """A body that describes the whole object. Unknown fields are refused. Fields that only the
    platform writes may be sent back as they were read; their values are ignored.

    The help text of a field is its column's, which the console's form shows too. The field's
    `note`, or the note in `Meta.notes`, is added for the JSON form.
    """

    serializer_field_mapping = OF_MODELS
    serializer_related_field = NamedField

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        fields = super().get_fields()
        model: Any = self.Meta.model
        columns = [*model._meta.concrete_fields, *model._meta.many_to_many]
        texts = {column.name: column.help_text for column in columns}
        notes = getattr(self.Meta, "notes", {})
        for name, field in fields.items():
            if field.help_text is None:
                note = notes.get(name) or getattr(field, "note", "")
                text = texts.get(field.source or name, "")
                field.help_text = f"{text} {note}".strip() if note else text or None
            if related := getattr(field, "child_relation", None):
                related.help_text = field.help_text  # not the help text of the other model's name
        return fields

    def build_standard_field(self, field_name: str, model_field: Any) -> Any:
        field_class, options = super().build_standard_field(field_name, model_field)
        if not options.get("required", True) and not options.get("read_only"):
            options["allow_null"] = True  # null means the same as a field that is left out
        return field_class, options

    def build_relational_field(self, field_name: str, relation_info: Any) -> Any:
        field_class, options = super().build_relational_field(field_name, relation_info)
        options.pop("view_name", None)
        if not options.get("required", True):
            options["allow_null"] = True
        return field_class, options

    def to_internal_value(self, data: Any) -> Any:
        check_known(self, data)
        if isinstance(data, Mapping):
            data = {name: value for name, value in data.items() if value is not None}
        return super().to_internal_value(data)


Fields = Mapping[str, serializers.Field[Any, Any, Any, Any]]


def fields_of(serializer_class: type[Any]) -> Fields:
    """The fields of a serializer by name, for reading only: making them anew takes milliseconds."""
    return _fields_of(cast(Hashable, serializer_class))


@cache
def _fields_of(serializer_class: Any) -> Fields:
    return MappingProxyType(dict(serializer_class().fields))
