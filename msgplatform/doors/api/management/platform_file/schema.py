"""A JSON Schema of platform files, for editors: the bodies are those of the OpenAPI document."""

import re
from functools import cache
from typing import Any

from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator

from msgplatform.setup.fields import fields_of
from msgplatform.setup.platform_file import kinds
from msgplatform.setup.platform_file.reading import VERSION, VERSION_KEY

_COMPONENTS, _DEFINITIONS = "#/components/schemas/", "#/$defs/"
# Keywords about the secret itself: in a file a reference takes its place.
_OF_SECRETS = ("maxLength", "minLength", "pattern", "format")


@cache
def json_schema() -> dict[str, Any]:
    """The schema of draft 2020-12. It takes seconds, and is always the same in a process."""
    with GENERATOR_STATS.silence():
        document: Any = SchemaGenerator(urlconf="msgplatform.urls").get_schema(
            request=None, public=True
        )
    definitions: dict[str, Any] = {}
    properties: dict[str, Any] = {VERSION_KEY: {"const": VERSION}}
    for section, kinds_of_section in kinds.sections().items():
        kind = kinds_of_section[0]
        names = " or ".join(
            "/".join(kind_of_section.address_lookups) for kind_of_section in kinds_of_section
        )
        # The body of this kind's PUT.
        path = "/api/v1/" + re.sub(r"<\w+:(\w+)>", r"{\1}", kind.path)
        content = document["paths"][path]["put"]["requestBody"]["content"]
        body = _move_references(content["application/json"]["schema"], document, definitions)
        fields = definitions[body["$ref"].removeprefix(_DEFINITIONS)]["properties"]
        for name, field in fields_of(kind.serializer_class).items():
            for word in _OF_SECRETS if field.source in kind.secret_fields else ():
                fields[name].pop(word, None)
        properties[section] = {
            "description": f"{kind.nouns[0].upper()}{kind.nouns[1:]}, by name: {names}",
            "type": ["object", "null"],
            "additionalProperties": {"anyOf": [body, {"type": "null"}]},
        }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Platform file of msgplatform",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "$defs": definitions,
    }


def _move_references(schema: Any, document: Any, definitions: dict[str, Any]) -> Any:
    """The schema with its references to components as references to definitions."""
    if isinstance(schema, list):
        return [_move_references(part, document, definitions) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(reference := schema.get("$ref"), str):
        name = reference.removeprefix(_COMPONENTS)
        if name not in definitions:
            definitions[name] = {}  # set before its content is read: it may refer to itself
            component = document["components"]["schemas"][name]
            definitions[name].update(_move_references(component, document, definitions))
        return {**schema, "$ref": _DEFINITIONS + name}
    return {key: _move_references(value, document, definitions) for key, value in schema.items()}
