"""Request bodies in the OpenAPI document are as strict as the platform: each is required, and none
has a field that is not listed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]


def close_bodies(result: Schema, **_context: Any) -> Schema:
    """A hook of drf-spectacular: changes the document, and returns it."""
    schemas = result.get("components", {}).get("schemas", {})
    closed_names: set[str] = set()
    for operations in result["paths"].values():
        for operation in operations.values():
            if body := operation.get("requestBody"):
                body["required"] = True
                for content in body["content"].values():
                    _close(content["schema"], schemas, closed_names)
    return result


def _close(schema: Schema, schemas: Schema, closed_names: set[str]) -> None:
    """Close the schema, what it contains, and the components that it refers to."""
    if reference := schema.get("$ref"):
        name = reference.rpartition("/")[2]
        if name in closed_names:
            return
        closed_names.add(name)
        schema = schemas[name]
    if "properties" in schema:
        schema.setdefault("additionalProperties", False)
    for part in _parts(schema):
        _close(part, schemas, closed_names)


def _parts(schema: Schema) -> Iterator[Schema]:
    yield from schema.get("properties", {}).values()
    for word in ("oneOf", "anyOf", "allOf"):
        yield from schema.get(word, ())
    if "items" in schema:
        yield schema["items"]
