"""JSON Schemas of the catalogue as schemas of an AsyncAPI document.

AsyncAPI 3.0 has one language of its own for schemas: draft 07 of JSON Schema and a few words more.
The catalogue takes drafts 3 to 2020-12, so a schema is rewritten:

- words of other drafts become those of draft 07 (`prefixItems`, `dependentRequired`, …)
- a reference within the schema (`#/$defs/line`, an anchor, `#`) leads to the same place in the
  document, because references of a document start at its root

What draft 07 has no word for is left out: a rewritten schema is there to be read, and to make types
of. Payloads are judged by the catalogue's own.
Sources: AsyncAPI 3.0.0, "Schema Object"; JSON Schema, the release notes of each draft.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

from jsonschema import (
    Draft3Validator,
    Draft4Validator,
    Draft6Validator,
    Draft7Validator,
    Draft202012Validator,
)
from jsonschema.validators import validator_for

Schema: TypeAlias = dict[str, Any]
Place: TypeAlias = tuple[str, ...]  # the names and numbers on the way to a part of a schema

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
# Words that have schemas by name, and words that have values of any kind.
_MAPS = frozenset({
    "properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies",
})  # fmt: skip
_VALUES = frozenset({"const", "enum", "default", "examples", "example"})
_ANCHORS = ("$anchor", "$dynamicAnchor")
# `discriminator` and `externalDocs` mean something else in AsyncAPI than in OpenAPI.
_LEFT_OUT = frozenset({
    *_REFERENCES, *_ANCHORS, "$schema", "$id", "$recursiveAnchor", "$vocabulary", "discriminator",
    "externalDocs", "dependentRequired",
})  # fmt: skip
# In these drafts a reference replaces the words beside it, but for those that hold or name schemas.
_OLD_DRAFTS = (Draft3Validator, Draft4Validator, Draft6Validator, Draft7Validator)
_BESIDE_A_REFERENCE = frozenset(
    {"$ref", "$id", "id", "$defs", "definitions", "title", "description"}
)
# A text of one of these drafts may have words of draft 07 with another meaning.
_CHECKED_DRAFTS = (Draft4Validator, Draft6Validator)


def rewritten(schema: Mapping[str, Any], pointer: str) -> Schema | None:
    """The schema for the place `pointer` of a document, such as `#/components/schemas/order.paid`.
    None if AsyncAPI has no words for it (draft 3)."""
    draft = validator_for(schema, default=Draft202012Validator)
    if draft is Draft3Validator:
        return None
    rewriting = _Rewriting(is_old=draft in _OLD_DRAFTS, is_newest=draft is Draft202012Validator)
    result = rewriting.schema(schema, (), (), ())
    rewriting.resolve(pointer)
    if draft in _CHECKED_DRAFTS and not Draft7Validator(Draft7Validator.META_SCHEMA).is_valid(
        result
    ):
        return None
    return dict(result)


def has_reference(value: Any) -> bool:
    """True if tools would take a part of this value, which is no schema, for a reference."""
    if isinstance(value, Mapping):
        return "$ref" in value or any(map(has_reference, value.values()))
    return isinstance(value, list) and any(map(has_reference, value))


@dataclass
class _Rewriting:
    """One schema that is being rewritten. Places are those in the catalogue's schema, each with its
    place in the result."""

    is_old: bool
    is_newest: bool
    _places: dict[Place, Place] = field(default_factory=dict)
    _anchors: dict[tuple[Place, str], Place] = field(default_factory=dict)
    # The new object of each reference, the place of its resource, and what it says.
    _references: list[tuple[Schema, Place, str]] = field(default_factory=list)

    def schema(self, part: Any, old: Place, new: Place, resource: Place) -> Any:
        """The rewritten part; `resource` is the place from which its references count."""
        self._places[old] = new
        if isinstance(part, list):
            return [
                self.schema(below, (*old, str(number)), (*new, str(number)), resource)
                for number, below in enumerate(part)
            ]
        if not isinstance(part, Mapping):
            return part
        resource = self._named(part, old, resource)
        if self.is_old and isinstance(part.get("$ref"), str):
            part = {word: part[word] for word in part if word in _BESIDE_A_REFERENCE}
        result = dict(self._words(part, old, new, resource))
        return self._with_references(part, result, resource)

    def resolve(self, pointer: str) -> None:
        """Write the references, now that all places are known. A reference to what is not in the
        result allows anything."""
        for target, resource, reference in self._references:
            place = self._place_of(reference, resource)
            if place is not None:
                target["$ref"] = "/".join((pointer, *map(_escaped, place)))

    def _named(self, part: Mapping[str, Any], old: Place, resource: Place) -> Place:
        """Store the part's anchors. Returns its resource: a part with an `$id` is its own."""
        for word in ("$id", "id") if self.is_old else ("$id",):
            address = part.get(word)
            if isinstance(address, str) and address.startswith("#"):
                self._anchors[resource, address[1:]] = old
            elif isinstance(address, str):
                resource = old
        for word in _ANCHORS:
            if isinstance(part.get(word), str):
                self._anchors[resource, part[word]] = old
        return resource

    def _words(
        self, part: Mapping[str, Any], old: Place, new: Place, resource: Place
    ) -> Iterator[tuple[str, Any]]:
        has_prefix = self.is_newest and "prefixItems" in part
        renamed = {"prefixItems": "items", "items": "additionalItems"} if has_prefix else {}
        for word, value in part.items():
            name = renamed.get(word, word)
            if self._is_left_out(part, word):
                continue
            if word in _MAPS and isinstance(value, Mapping):
                name = "dependencies" if word == "dependentSchemas" else name
                yield (
                    name,
                    {
                        key: self.schema(below, (*old, word, key), (*new, name, key), resource)
                        for key, below in value.items()
                        if key != "$ref"  # tools take a property of this name for a reference
                    },
                )
            elif word in _VALUES:
                if not has_reference(value):
                    yield name, value
            else:
                yield name, self.schema(value, (*old, word), (*new, name), resource)
        required = part.get("dependentRequired")
        if isinstance(required, Mapping) and not part.keys() & {"dependentSchemas", "dependencies"}:
            yield "dependencies", dict(required)

    def _is_left_out(self, part: Mapping[str, Any], word: str) -> bool:
        if self.is_old and word == "id" and isinstance(part[word], str):
            return True
        if word == "contains" and part.get("minContains") == 0:
            return True
        # Words that draft 2020-12 does not know may hold anything.
        is_unknown = self.is_newest and word == "additionalItems"
        return is_unknown or word in _LEFT_OUT or self._is_flag(part, word)

    def _is_flag(self, part: Mapping[str, Any], word: str) -> bool:
        """True for `exclusiveMinimum: true` of draft 4, beside which `minimum` says the same."""
        return word in {"exclusiveMinimum", "exclusiveMaximum"} and isinstance(part[word], bool)

    def _with_references(self, part: Mapping[str, Any], result: Schema, resource: Place) -> Schema:
        """The result with its references. Words beside a reference count in new drafts, in draft 07
        they do not: both are then parts of `allOf`."""
        for word in _REFERENCES:
            if isinstance(reference := part.get(word), str):
                target: Schema = {}
                self._references.append((target, resource, reference))
                if not result and len(part.keys() & set(_REFERENCES)) == 1:
                    return target
                result["allOf"] = [*result.get("allOf", ()), target]
        return result

    def _place_of(self, reference: str, resource: Place) -> Place | None:
        name = unquote(reference.removeprefix("#"))
        tokens = tuple(_unescaped(token) for token in name.split("/")[1:])
        for start in (resource, ()):
            is_pointer = not name or name.startswith("/")
            old = (*start, *tokens) if is_pointer else self._anchors.get((start, name))
            if old in self._places:
                return self._places[old]
        return None


def _escaped(token: str) -> str:
    return quote(token.replace("~", "~0").replace("/", "~1"), safe="~!$&'()*+,;=:@-._")


def _unescaped(token: str) -> str:
    return token.replace("~1", "/").replace("~0", "~")
