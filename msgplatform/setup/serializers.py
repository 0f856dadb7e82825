"""The body that describes a whole object of what people set up."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, cast

from rest_framework import serializers

from msgplatform.setup import fields


class WholeSerializer(serializers.ModelSerializer[Any]):
    """A body that describes the whole object. Unknown fields are refused. Fields that only the
    platform writes may be sent back as they were read; their values are ignored."""

    serializer_field_mapping = fields.OF_MODELS
    serializer_related_field = fields.NamedField

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
        fields.check_known(self, data)
        if isinstance(data, Mapping):
            data = {name: value for name, value in data.items() if value is not None}
        return super().to_internal_value(data)


Fields = Mapping[str, serializers.Field[Any, Any, Any, Any]]


def fields_of(serializer_class: type[Any]) -> Fields:
    """The fields of a serializer by name, to be looked at: to make them anew takes milliseconds."""
    return _fields_of(cast(Hashable, serializer_class))


@cache
def _fields_of(serializer_class: Any) -> Fields:
    return MappingProxyType(dict(serializer_class().fields))
