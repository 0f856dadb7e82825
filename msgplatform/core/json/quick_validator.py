"""Accepts matching values a hundred times as fast as `schema`, by jsonschema-rs.

The library counts no steps and knows no decimals. So a schema has a quick validator only if the
result is the same as with `schema`, in a time that is known before: it has only the keywords and
references listed here, numbers that a float holds exactly, and no schema that contains itself.
Keywords with a function of our own in `keywords` use this function here, too.
"""

import re
from collections.abc import Mapping
from typing import Any

import jsonschema_rs
import msgspec

from msgplatform.core.json import keywords, patterns

# The most work (weight of the schema times bytes of the value), which takes 30 ms. At worst every
# part of the schema looks at every value, and half of the bytes are values.
MAX_WORK = 4_000_000
_MAX_WEIGHT = 10_000  # bounds the memory of a compiled schema
_FUNCTION_WEIGHT = 100  # a keyword in Python, relative to the library's
_MAX_EXACT = 2**53  # integers up to here are exact as floats

_NEWEST = "https://json-schema.org/draft/2020-12/schema"
_DRAFT_7 = "http://json-schema.org/draft-07/schema"
_CLASSES = {_NEWEST: jsonschema_rs.Draft202012Validator, _DRAFT_7: jsonschema_rs.Draft7Validator}
# Keywords by the work that they make: none, the number of values in the keyword's value, that of a
# schema, a list of schemas, or a mapping to schemas. Names with NEW are not in draft 7.
_NOTES = {
    "$comment", "$defs", "default", "definitions", "deprecated", "description", "examples",
    "format", "readOnly", "title", "writeOnly",
}  # fmt: skip
_VALUES = {
    "const", "enum", "exclusiveMaximum", "exclusiveMinimum", "maxItems", "maxLength",
    "maxProperties", "maximum", "minItems", "minLength", "minProperties", "minimum", "required",
    "type",
}  # fmt: skip
_NEW_VALUES = {"dependentRequired", "maxContains", "minContains"}
_SCHEMAS = {
    "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then",
}  # fmt: skip
_LISTS, _NEW_LISTS = {"allOf", "anyOf", "oneOf"}, {"prefixItems"}
_MAPPINGS, _NEW_MAPPINGS = {"patternProperties", "properties"}, {"dependentSchemas"}
# Expressions with the same meaning in RE2 and the library's engine, which does not backtrack
# either. The engines differ in `\s` and `\b` beyond ASCII, in names, and in `&&` in a class.
_ESCAPE, _IN_CLASS = r"\\[dDwW.\\/^$|?*+(){}\[\]-]", r"[^\\\[\]&~^-]"
_ALIKE = re.compile(
    rf"(?:[^\\\[\](){{}}|?*+.^$]|{_ESCAPE}|[.^$|?*+)]|\((?:\?:|(?!\?))|\{{\d+(?:,\d*)?\}}"
    rf"|\[\^?-?(?:(?:{_ESCAPE}|{_IN_CLASS})(?:-{_IN_CLASS})?)*-?\])*"
)
_REGEX_OPTIONS = jsonschema_rs.RegexOptions(size_limit=1024 * 1024, dfa_size_limit=256 * 1024)
_REFERENCE = re.compile(r"#/(\$defs|definitions)/([^/%~]+)")


class _Unfit(Exception):
    """A schema for which there is no quick validator."""


class _Mismatch(Exception):
    """A value does not match; `schema` finds the words."""


class _Function:
    """One of our keywords for the library, which makes an object for each place of the keyword."""

    name: str

    def __init__(self, _schema: Any, value: Any, _path: Any) -> None:
        self._value, self._find_errors = value, keywords.FUNCTIONS[self.name]

    def validate(self, instance: Any) -> None:
        """Raises _Mismatch, TooManySteps."""
        for _error in self._find_errors(None, self._value, instance, None):
            raise _Mismatch


_FUNCTIONS = {name: type(name, (_Function,), {"name": name}) for name in keywords.FUNCTIONS}


class QuickValidator(msgspec.Struct, frozen=True):
    """A schema, for any thread. `weight` is its cost: time for each byte of a value, and about 200
    bytes of memory."""

    validator: jsonschema_rs.Validator
    weight: int

    def accepts(self, value: Any, size: int) -> bool:
        """True if the value, which has `size` bytes as JSON, matches. False says nothing."""
        if size * self.weight > MAX_WORK:
            return False
        keywords.begin_steps(size)
        return self.validator.is_valid(value)


def quick_validator(schema: Mapping[str, Any]) -> QuickValidator | None:
    """None for a schema that the library may read differently. `schema` must have accepted the
    schema."""
    address = str(schema.get("$schema", _NEWEST)).removesuffix("#")
    has_addresses = msgspec.json.encode(schema).count(b'"$id"') > ("$id" in schema)
    if address not in _CLASSES or has_addresses:
        return None
    parts = {name: value for name, value in schema.items() if name not in ("$schema", "$id")}
    try:
        weights = _Weights(schema, address == _NEWEST)
        weight = weights.of(parts)
        validator = _CLASSES[address](
            dict(schema), validate_formats=False, offline=True, pattern_options=_REGEX_OPTIONS,
            keywords={name: _FUNCTIONS[name] for name in weights.functions},
        )  # fmt: skip
    except (_Unfit, ValueError, jsonschema_rs.ReferencingError):
        return None
    return QuickValidator(validator, weight)


class _Weights:
    """Counts the work of a schema's parts, once for each reference; `functions` collects the
    keywords that are our functions. Raises _Unfit."""

    def __init__(self, schema: Mapping[str, Any], is_newest: bool) -> None:
        self._schema, self._is_newest = schema, is_newest
        self._value_keywords = _VALUES | _NEW_VALUES if is_newest else _VALUES
        self._list_keywords = _LISTS | _NEW_LISTS if is_newest else _LISTS
        self._mapping_keywords = _MAPPINGS | _NEW_MAPPINGS if is_newest else _MAPPINGS
        self.functions: set[str] = set()
        # Weight by reference; None during the count.
        self._by_reference: dict[str, int | None] = {}

    def of(self, part: Any) -> int:
        if isinstance(part, bool):
            return 1
        if not isinstance(part, Mapping):
            raise _Unfit
        if "$ref" in part and not self._is_newest and part.keys() - _NOTES != {"$ref"}:
            raise _Unfit  # draft 7 ignores other keywords beside $ref
        weight = 1 + sum(self._of_keyword(name, value) for name, value in part.items())
        if weight > _MAX_WEIGHT:
            raise _Unfit
        return weight

    def _of_keyword(self, name: str, value: Any) -> int:
        if name in _NOTES or name.startswith("x-"):
            return 0
        if name in self._value_keywords:
            return _count_values(value)
        if name == "pattern" and _ALIKE.fullmatch(value):
            return 1 + patterns.instructions(value)
        if name in keywords.FUNCTIONS:
            self.functions.add(name)
            return _FUNCTION_WEIGHT + (patterns.instructions(value) if name == "pattern" else 0)
        if name in _SCHEMAS:
            return 1 + self.of(value)
        if name in self._list_keywords:
            return 1 + sum(map(self.of, value))
        if name in self._mapping_keywords:
            weight = sum(1 + self.of(part) for part in value.values())
            if name == "patternProperties":
                if not all(map(_ALIKE.fullmatch, value)):
                    raise _Unfit
                weight += sum(map(patterns.instructions, value))
            return weight
        if name == "$ref" and (match := _REFERENCE.fullmatch(value)):
            return self._of_reference(match[0], match[1], match[2])
        raise _Unfit

    def _of_reference(self, reference: str, container: str, name: str) -> int:
        if reference not in self._by_reference:
            self._by_reference[reference] = None
            self._by_reference[reference] = self.of(self._schema[container][name])
        weight = self._by_reference[reference]
        if weight is None:  # the schema contains itself
            raise _Unfit
        return weight


def _count_values(value: Any) -> int:
    """The number of values in a keyword's value. Raises _Unfit for numbers that the library may
    round."""
    if isinstance(value, Mapping):
        return 1 + sum(map(_count_values, value.values()))
    if isinstance(value, list):
        return 1 + sum(map(_count_values, value))
    if isinstance(value, int | float) and abs(value) > _MAX_EXACT:
        raise _Unfit
    return 1
