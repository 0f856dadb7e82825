"""The fields of a payload as rows of a table, from the schema that the document has."""

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any
from urllib.parse import unquote

import msgspec
from django.utils.translation import gettext as _

MAX_ROWS = 300
MAX_LEVELS = 8
# Parts of a schema that are read, each time that they are referred to: a fraction of a second.
# Thirty definitions, each with two references to the next, are a billion.
_MAX_STEPS = 10_000
_MAX_OPEN = 200  # references on one path
_MAX_TEXT = 200  # characters of a value that is shown
_BOUNDS = {
    "minimum": "≥ {}", "exclusiveMinimum": "> {}", "maximum": "≤ {}", "exclusiveMaximum": "< {}",
    "minLength": "length ≥ {}", "maxLength": "length ≤ {}", "minItems": "items ≥ {}",
    "maxItems": "items ≤ {}", "pattern": "{}", "multipleOf": "multiple of {}",
    "format": "{}", "contentMediaType": "{}",
}  # fmt: skip


class Field(msgspec.Struct, frozen=True):
    """A field. `level`: its depth in the schema. `limits`: the schema's bounds of the value."""

    name: str
    level: int
    type: str
    is_required: bool
    description: str
    limits: tuple[str, ...]


def rows(schema: Mapping[str, Any], pointer: str) -> tuple[list[Field], bool]:
    """At most MAX_ROWS fields, and True if there may be more. `pointer` is the schema's place in
    the document."""
    fields: list[Field] = []
    try:
        for field in islice(_Reader(schema, pointer, [pointer]).below(schema, 0), MAX_ROWS):
            fields.append(field)  # noqa: PERF402 - the fields before an exception stay
    except _TooLarge:
        return fields, True
    return fields, len(fields) == MAX_ROWS


class _TooLarge(Exception):
    """The walk has taken _MAX_STEPS, or a path has _MAX_OPEN references."""


class _Reader(msgspec.Struct):
    """Walks a schema. A recursive schema is followed once on each path."""

    root: Mapping[str, Any]
    pointer: str
    _open: list[str]  # references that are being followed
    _steps: int = 0

    def below(self, schema: Any, level: int) -> Iterator[Field]:
        """The fields of an object, or of the objects in an array."""
        if level > MAX_LEVELS:
            return
        resolved_schema, references = self._resolve(schema)
        if any(reference in self._open for reference in references):
            return
        self._open += references
        if len(self._open) > _MAX_OPEN:
            raise _TooLarge
        required_names = resolved_schema.get("required", ())
        for name, part in _mapping(resolved_schema, "properties").items():
            yield self._field(name, part, level, name in required_names)
            yield from self.below(part, level + 1)
        for name, part in _mapping(resolved_schema, "patternProperties").items():
            yield self._field(f"/{name}/", part, level, False)
            yield from self.below(part, level + 1)
        items = resolved_schema.get("items")
        for part in items if isinstance(items, list) else [items]:
            if isinstance(part, Mapping):
                yield from self.below(part, level)
        part = resolved_schema.get("additionalProperties")
        if isinstance(part, Mapping):
            yield self._field(_("(any other name)"), part, level, False)
            yield from self.below(part, level + 1)
        for word in ("oneOf", "anyOf"):
            parts = resolved_schema.get(word)
            for part in parts if isinstance(parts, list) else ():
                yield from self.below(part, level)
        del self._open[len(self._open) - len(references) :]

    def _field(self, name: str, part: Any, level: int, is_required: bool) -> Field:
        schema, references = self._resolve(part)
        type_text = self._type(part)
        if any(reference in self._open for reference in references):
            type_text = _("%s, as above") % type_text  # its fields are not listed again
        description = str(schema.get("description", ""))
        return Field(name, level, type_text, is_required, description, tuple(_limits(schema)))

    def _type(self, part: Any, array_references: tuple[str, ...] = ()) -> str:
        if part is False:
            return _("not allowed")
        schema, references = self._resolve(part)
        if "const" in schema:
            return _text(schema["const"])
        types = schema.get("type", ())
        names = [types] if isinstance(types, str) else [str(name) for name in types]
        items = schema.get("items")
        is_closed = len(array_references) >= MAX_LEVELS or any(
            name in array_references for name in references
        )
        if "array" in names and isinstance(items, Mapping | bool) and not is_closed:
            item_type = self._type(items, (*array_references, *references))
            names[names.index("array")] = _("array of %s") % item_type
        for word in ("oneOf", "anyOf"):
            parts = schema.get(word)
            if not names and isinstance(parts, list) and len(self._open) < MAX_LEVELS:
                names = list(dict.fromkeys(self._simple_type(part) for part in parts))
        if not names and "properties" in schema:
            names = ["object"]
        return " | ".join(names) or _("any")

    def _simple_type(self, part: Any) -> str:
        schema, _references = self._resolve(part)
        types = schema.get("type", "object" if "properties" in schema else _("any"))
        return types if isinstance(types, str) else " | ".join(types)

    def _resolve(self, part: Any) -> tuple[dict[str, Any], list[str]]:
        """The schema without `$ref` and `allOf`, and the references that led to it."""
        references: list[str] = []
        schema = dict(part) if isinstance(part, Mapping) else {}
        merged_schema: dict[str, Any] = {}
        waiting = [schema]
        while waiting:
            schema = waiting.pop(0)
            self._steps += 1
            if self._steps > _MAX_STEPS:
                raise _TooLarge
            reference = schema.get("$ref")
            if isinstance(reference, str) and reference not in references:
                references.append(reference)
                target: Any = self.root
                path = reference.removeprefix(self.pointer)
                for token in path.split("/")[1:]:
                    name = unquote(token).replace("~1", "/").replace("~0", "~")
                    target = target[int(name)] if isinstance(target, list) else target[name]
                waiting += [dict(target)] if isinstance(target, Mapping) else []
            parts = schema.get("allOf")
            waiting += [dict(part) for part in parts if isinstance(part, Mapping)] if parts else []
            # Merge both schemas, to list the fields of both. The earlier schema goes first.
            earlier, merged_schema = merged_schema, {**schema, **merged_schema}
            properties = {**_mapping(schema, "properties"), **_mapping(earlier, "properties")}
            if properties:
                merged_schema["properties"] = properties
            required_names = [*earlier.get("required", ()), *schema.get("required", ())]
            if required_names:
                merged_schema["required"] = required_names
        return merged_schema, references


def _mapping(schema: Mapping[str, Any], word: str) -> Mapping[str, Any]:
    value = schema.get(word)
    return value if isinstance(value, Mapping) else {}


def _limits(schema: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(values := schema.get("enum"), list):
        yield _("one of %s") % ", ".join(map(_text, values))
    for word, form in _BOUNDS.items():
        if word in schema:
            yield form.format(_plain(schema[word]))
    if "default" in schema:
        yield _("default %s") % _text(schema["default"])


def _text(value: Any) -> str:
    return _plain(json.dumps(value, ensure_ascii=False))


def _plain(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"
