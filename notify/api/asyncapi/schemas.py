"""JSON Schemas of the catalogue as schemas of an AsyncAPI document.

The catalogue accepts drafts 3 to 2020-12. AsyncAPI 3.0 has its own language for schemas: draft 07
of JSON Schema and a few keywords more. A schema could name another draft (`schemaFormat`), but
generators do not read such a schema: Modelina 5.10 makes `any` of the payload. So a schema changes
only where draft 07 gives it another meaning:

- keywords of other drafts become keywords of draft 07 (`prefixItems`, `dependentRequired`, …)
- a reference becomes a reference from the document's root; in the catalogue references begin at the
  schema's root, or name an anchor

Rewritten schemas are for readers and generators. The intake checks payloads against the schemas of
the catalogue. Sources: AsyncAPI 3.0.0, "Schema Object" and "Multi Format Schema Object"; JSON
Schema, the release notes of each draft.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote, unquote

import msgspec
from jsonschema import Draft3Validator, Draft7Validator, Draft201909Validator, Draft202012Validator
from jsonschema.validators import validator_for

Schema: TypeAlias = dict[str, Any]

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_SAFE = "~!$&'()*+,;=:@-._"  # characters that a pointer need not quote
_ANCHORS = ("$anchor", "$dynamicAnchor")
# Words that have schemas by name, and words that have values of any kind.
_MAPS = frozenset({
    "properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies",
})  # fmt: skip
# In old drafts a reference replaces the keywords beside it, except these.
_BESIDE_A_REFERENCE = frozenset({"$ref", "$defs", "definitions", "title", "description"})
_VALUES = frozenset({"const", "enum", "default", "examples", "example"})
# Keywords that are left out: references would be relative to an `$id`; `discriminator` and
# `externalDocs` have another meaning in AsyncAPI than in OpenAPI.
_LEFT_OUT = frozenset({
    *_REFERENCES, *_ANCHORS, "$schema", "$id", "discriminator", "externalDocs", "dependentRequired",
})  # fmt: skip


def rewritten(schema: Mapping[str, Any], pointer: str) -> Schema | None:
    """The schema for the place `pointer` of a document, such as `#/components/schemas/order.paid`.
    None if AsyncAPI cannot express the schema (draft 3)."""
    draft = validator_for(schema, default=Draft202012Validator)
    if draft is Draft3Validator:
        return None
    is_new = draft in (Draft201909Validator, Draft202012Validator)
    rewriting = _Rewriting(is_new, is_newest=draft is Draft202012Validator)
    result: Schema = rewriting.schema(schema, Place("#", pointer))
    for part, reference in rewriting.references:
        if target := rewriting.places.get(unquote(reference)):
            part["$ref"] = target
    # A keyword that the schema's draft does not define may have any value, so check the result.
    return result if Draft7Validator(Draft7Validator.META_SCHEMA).is_valid(result) else None


def has_reference(value: Any) -> bool:
    """True if tools would take a part of this value, which is no schema, for a reference."""
    if isinstance(value, Mapping):
        return "$ref" in value or any(map(has_reference, value.values()))
    return isinstance(value, list) and any(map(has_reference, value))


class Place(NamedTuple):
    """The place of a part: the reference in its schema, and the pointer in the document."""

    reference: str
    pointer: str

    def below(self, name: str, new_name: str = "") -> Place:
        """The place of the member `name`, which the document may call `new_name`."""
        old, new = (text.replace("~", "~0").replace("/", "~1") for text in (name, new_name or name))
        return Place(f"{self.reference}/{old}", f"{self.pointer}/{quote(new, safe=_SAFE)}")


class _Rewriting(msgspec.Struct):
    """The rewriting of one schema. `is_new`: its draft is 2019-09 or later."""

    is_new: bool
    is_newest: bool
    # Reference → pointer in the document.
    places: dict[str, str] = msgspec.field(default_factory=dict)
    # Pairs of a part and its reference.
    references: list[tuple[Schema, str]] = msgspec.field(default_factory=list)

    def schema(self, part: Any, place: Place) -> Any:
        """The part for its place in the document."""
        self.places[place.reference] = place.pointer
        if isinstance(part, list):
            return [
                self.schema(below, place.below(str(number))) for number, below in enumerate(part)
            ]
        if not isinstance(part, Mapping):
            return part
        self.places |= {f"#{part[word]}": place.pointer for word in _ANCHORS if word in part}
        if not self.is_new and isinstance(part.get("$ref"), str):
            part = {word: part[word] for word in part if word in _BESIDE_A_REFERENCE}
        result = dict(self._words(part, place))
        for word in _REFERENCES:
            if isinstance(reference := part.get(word), str):
                # Keywords beside a reference count in new drafts; draft 07 ignores them.
                is_alone = not result and len(part.keys() & set(_REFERENCES)) == 1
                target: Schema = result if is_alone else {}
                if not is_alone:
                    result["allOf"] = [*result.get("allOf", ()), target]
                self.references.append((target, reference))
        return result

    def _words(self, part: Mapping[str, Any], place: Place) -> Iterator[tuple[str, Any]]:
        has_prefix = self.is_newest and "prefixItems" in part
        names = {"prefixItems": "items", "items": "additionalItems"} if has_prefix else {}
        names["dependentSchemas"] = "dependencies"
        for word, value in part.items():
            if (
                word in _LEFT_OUT
                or (word == "id" and not self.is_new and isinstance(value, str))
                or (word == "contains" and part.get("minContains") == 0)
                or (word == "additionalItems" and self.is_newest)  # not in draft 2020-12
                # Draft 4 has a boolean here, which is dropped; `minimum` beside it stays.
                or (word in {"exclusiveMinimum", "exclusiveMaximum"} and isinstance(value, bool))
            ):
                continue
            name = names.get(word, word)
            below = place.below(word, name)
            if word in _MAPS and isinstance(value, Mapping):
                # Tools take a property called $ref for a reference.
                keys = [key for key in value if key != "$ref"]
                yield name, {key: self.schema(value[key], below.below(key)) for key in keys}
            elif word not in _VALUES:
                yield name, self.schema(value, below)
            elif not has_reference(value):
                yield name, value
        requirements = part.get("dependentRequired")
        has_others = part.keys() & {"dependentSchemas", "dependencies"}
        if isinstance(requirements, Mapping) and not has_others:
            yield "dependencies", dict(requirements)
