"""Path converters of the API."""

from django.urls import register_converter
from django.urls.converters import IntConverter

_MAX_ID = 2**63 - 1
ID_PATTERN = "^[0-9]{1,19}$"  # for the schema
ID = {"type": "string", "pattern": ID_PATTERN}  # the schema of an id


class IdConverter(IntConverter):
    """`<id:pk>`: an id in an address. To the caller, and in the schema, it is a string."""

    regex = "[0-9]{1,19}"

    def to_python(self, value: str) -> int:
        number = super().to_python(value)
        if number > _MAX_ID:
            raise ValueError("no id is that large")  # Django then answers 404
        return number


register_converter(IdConverter, "id")
