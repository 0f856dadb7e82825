"""A sample value for a JSON Schema, as a start for a test. The sample follows examples, defaults,
choices, types and properties. It need not match: patterns and conditions are left to the person who
edits the sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MAX_DEPTH = 12
_BY_FORMAT = {
    "date-time": "2026-01-31T08:00:00Z", "date": "2026-01-31", "time": "08:00:00Z",
    "email": "somebody@example.com", "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}  # fmt: skip


def sample(schema: Any, root: Any = None, depth: int = 0) -> Any:
    """The sample for a schema. `root` is the document that references lead into."""
    root = schema if root is None else root
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return {}
    if isinstance(reference := schema.get("$ref"), str):
        return sample(_at(root, reference), root, depth + 1)
    for name in ("examples", "enum"):
        if isinstance(values := schema.get(name), list) and values:
            return values[0]
    for name in ("const", "default"):
        if name in schema:
            return schema[name]
    for name in ("allOf", "anyOf", "oneOf"):
        if isinstance(parts := schema.get(name), list) and parts and "properties" not in schema:
            return sample(parts[0], root, depth + 1)
    return _of_type(schema, root, depth)


def _of_type(schema: Mapping[str, Any], root: Any, depth: int) -> Any:
    kinds = schema.get("type", "object")
    kind = kinds[0] if isinstance(kinds, list) and kinds else kinds
    if kind == "object":
        properties = schema.get("properties")
        parts = properties if isinstance(properties, Mapping) else {}
        return {name: sample(part, root, depth + 1) for name, part in parts.items()}
    if kind == "array":
        count = max(1, min(int(schema.get("minItems") or 1), 5))
        return [sample(schema.get("items", {}), root, depth + 1) for _ in range(count)]
    if kind in ("integer", "number"):
        return schema.get("minimum", schema.get("maximum", 1))
    if kind == "string":
        text = _BY_FORMAT.get(str(schema.get("format")), "text")
        return text.ljust(min(int(schema.get("minLength") or 0), 1000), "x")
    return {"boolean": True}.get(str(kind))


def _at(root: Any, reference: str) -> Any:
    """The schema at a reference such as #/$defs/line; {} for other references."""
    place = root
    for name in reference.removeprefix("#/").split("/") if reference.startswith("#/") else ["#"]:
        place = place.get(name, {}) if isinstance(place, Mapping) else {}
    return place
