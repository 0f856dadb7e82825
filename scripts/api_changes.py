#!/usr/bin/env python3
"""Name the changes between two OpenAPI documents that break a client: an operation, parameter,
property or value that is gone, a new duty in a request, a promise less or a new value in an answer.

    scripts/api_changes.py RELEASED.json NEW.json      exit code 1: there are some
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Schema = dict[str, Any]
_METHODS = ("get", "put", "post", "delete", "patch")
# Bounds of a value, and whether a larger number allows less.
_BOUNDS = {
    "maxLength": False, "maximum": False, "maxItems": False, "minLength": True, "minimum": True,
    "minItems": True,
}  # fmt: skip


class Comparison:
    """Two documents; references are resolved in their own."""

    def __init__(self, old: Schema, new: Schema) -> None:
        self._old, self._new = old, new
        self._compared: set[tuple[str, str, bool]] = set()

    def breaking_changes(self) -> Iterator[str]:
        for path, operations in self._old["paths"].items():
            for method in _METHODS:
                if method not in operations:
                    continue
                name = f"{method.upper()} {path}"
                new = self._new["paths"].get(path, {}).get(method)
                if new is None:
                    yield f"{name} is gone"
                else:
                    yield from self._operation(name, operations[method], new)

    def _operation(self, name: str, old: Schema, new: Schema) -> Iterator[str]:
        old_parameters, new_parameters = (
            {(each["in"], each["name"]): each for each in operation.get("parameters", ())}
            for operation in (old, new)
        )
        for key, parameter in old_parameters.items():
            if key not in new_parameters:
                yield f"{name}: the parameter {key[1]} is gone"
            else:
                schemas = parameter.get("schema", {}), new_parameters[key].get("schema", {})
                yield from self._schema(f"{name}: {key[1]}", *schemas, is_request=True)
        for key, parameter in new_parameters.items():
            is_required = parameter.get("required") and key[0] != "path"
            if is_required and not old_parameters.get(key, {}).get("required"):
                yield f"{name}: the parameter {key[1]} is required"
        old_body, new_body = (
            operation.get("requestBody", {}).get("content", {}) for operation in (old, new)
        )
        yield from self._contents(f"{name}: body", old_body, new_body, is_request=True)
        for status, answer in old["responses"].items():
            if status.startswith("2"):
                if status not in new["responses"]:
                    yield f"{name}: the answer {status} is gone"
                    continue
                contents = answer.get("content", {}), new["responses"][status].get("content", {})
                yield from self._contents(f"{name}: answer", *contents, is_request=False)

    def _contents(self, name: str, old: Schema, new: Schema, is_request: bool) -> Iterator[str]:
        for kind, content in old.items():
            if kind not in new:
                yield f"{name}: {kind} is gone"
            else:
                schemas = content.get("schema", {}), new[kind].get("schema", {})
                yield from self._schema(name, *schemas, is_request)

    def _schema(self, name: str, old: Schema, new: Schema, is_request: bool) -> Iterator[str]:
        references = old.get("$ref", ""), new.get("$ref", "")
        if any(references):
            if (*references, is_request) in self._compared:
                return
            self._compared.add((*references, is_request))
        old, new = _resolve(self._old, old), _resolve(self._new, new)
        yield from _value(name, old, new, is_request)
        old_properties, new_properties = old.get("properties", {}), new.get("properties", {})
        for key, schema in old_properties.items():
            if key not in new_properties:
                yield f"{name}: {key} is gone"
            else:
                yield from self._schema(f"{name}.{key}", schema, new_properties[key], is_request)
        before, after = set(old.get("required", ())), set(new.get("required", ()))
        for key in sorted(after - before if is_request else before - after):
            if is_request or key in new_properties:
                yield f"{name}: {key} is {'required' if is_request else 'no longer always there'}"
        for key in ("items", "additionalProperties"):
            if isinstance(old.get(key), dict) and isinstance(new.get(key), dict):
                yield from self._schema(f"{name}[]", old[key], new[key], is_request)
        for key in ("allOf", "anyOf", "oneOf"):
            for one, other in zip(old.get(key, ()), new.get(key, ()), strict=False):
                yield from self._schema(name, one, other, is_request)
            missing = len(old.get(key, ())) - len(new.get(key, ()))
            if is_request and key != "allOf" and missing > 0:
                yield f"{name}: an alternative is gone"


def _value(name: str, old: Schema, new: Schema, is_request: bool) -> Iterator[str]:
    """A request may carry less, or an answer more, than before: types, values, bounds."""
    old_types, new_types = _types(old), _types(new)
    lost_types = old_types - new_types if is_request else new_types - old_types
    if old_types and new_types and lost_types:
        verb = "no longer takes" if is_request else "may be"
        yield f"{name}: {verb} {', '.join(sorted(lost_types))}"
    if not is_request:
        # Clients that are generated in Go, Java and PHP refuse a value that they do not know.
        new_values = set(map(str, new.get("enum", ()))) - set(map(str, old.get("enum", ())))
        if "enum" in old and "enum" not in new:
            yield f"{name}: may be any value"
        elif "enum" in old and new_values:
            yield f"{name}: may be {', '.join(sorted(new_values))}"
        return
    if "enum" in new:
        lost_values = set(map(str, old.get("enum", ()))) - set(map(str, new["enum"]))
        if "enum" not in old:
            yield f"{name}: takes certain values only"
        elif lost_values:
            yield f"{name}: no longer takes {', '.join(sorted(lost_values))}"
    for bound, is_lower in _BOUNDS.items():
        if bound in new:
            before, after = old.get(bound), new[bound]
            if before is None or (after > before if is_lower else after < before):
                yield f"{name}: {bound} is {after}"


def _resolve(document: Schema, schema: Schema) -> Schema:
    while reference := schema.get("$ref"):
        schema = document
        for part in reference.removeprefix("#/").split("/"):
            schema = schema[part]
    return schema


def _types(schema: Schema) -> set[str]:
    types = schema.get("type", ())
    return {types} if isinstance(types, str) else set(types)


def main(old: str, new: str) -> int:
    documents = (json.loads(Path(name).read_text()) for name in (old, new))
    changes = sorted(set(Comparison(*documents).breaking_changes()))
    print("\n".join(changes))
    return int(bool(changes))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
