"""JSON Schema: check a schema, and find the fault of a value.

Draft 2020-12, unless `$schema` at the root names another draft. References may lead only to places
of the same document: no document is fetched. `format` is not checked, as the specification allows.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urldefrag

import msgspec
from django.utils.translation import gettext_noop as _
from jsonschema import Draft202012Validator
from jsonschema.exceptions import UnknownType, ValidationError, best_match
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from referencing import Registry, Resource, Specification
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from msgplatform.core.errors import InvalidInput
from msgplatform.core.json import keywords, patterns
from msgplatform.core.json.quick_validator import QuickValidator, quick_validator
from msgplatform.core.lazy_text import lazy_message

MAX_SCHEMA_BYTES = 64 * 1024
_MAX_COMPARED = 20  # errors from which the best is chosen
_MAX_CHARACTERS = 300  # of an error, which may quote the whole value
_INSTRUCTIONS_A_STEP = 16  # of regular expressions that are compiled
_REFERENCES = ("$ref", "$dynamicRef")
_UNNAMED = "urn:schema"  # the address of a schema without `$id`
# Keywords with schemas by name, and keywords with values of any kind, which look like schemas.
_MAPPINGS = frozenset({
    "$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties",
})  # fmt: skip
_VALUES = frozenset({"const", "default", "enum", "examples"})
# An object in a schema, and the resolver of its references: None below a keyword of _VALUES.
_Part: TypeAlias = tuple[Mapping[str, Any], Any]
# A pattern that is the beginning, the end or a part of a name.
_PLAIN_PATTERN = re.compile(r"\^?([\w .:/@#-]|\\[.^$-])*\$?")
_TOO_MANY_STEPS = (
    "it takes too long to compare it with the schema; write the schema with fewer references and "
    "alternatives, or send less in one payload"
)
# The libraries raise these for a reference whose target is no schema (an `$id` inside a schema
# changes the targets), and for a number that no float can hold.
_UNUSABLE = (
    Unresolvable, UnknownType, ArithmeticError, AttributeError, LookupError, TypeError, ValueError,
)  # fmt: skip


class Fault(NamedTuple):
    """The fault of a value; `path` such as `.lines[2].amount`, '' for the value itself."""

    path: str
    reason: str


class Schema(msgspec.Struct, frozen=True):
    """A schema, which any thread may use. `quick` is None where `validator` must decide alone."""

    validator: Validator
    quick: QuickValidator | None


def compile_schema(schema: Mapping[str, Any]) -> Schema:
    """The schema, ready for use. Raises InvalidInput that names the fault of the schema."""
    size = len(msgspec.json.encode(schema))
    if size > MAX_SCHEMA_BYTES:
        max_kib = MAX_SCHEMA_BYTES // 1024
        raise InvalidInput(lazy_message("A schema may have %(most)d KiB at most.", most=max_kib))
    try:
        draft_class = validator_for(schema, default=Draft202012Validator)
    except (AttributeError, TypeError, ValueError):
        default_draft = "https://json-schema.org/draft/2020-12/schema"
        words = lazy_message("$schema is the address of a draft: %(draft)s", draft=default_draft)
        raise InvalidInput(words) from None
    draft = keywords.bounded_class(draft_class)
    try:
        keywords.begin_steps(size)
        check = keywords.metaschema_class(draft_class)
        if error := _best_error(check(draft_class.META_SCHEMA), schema):
            where = error.json_path.removeprefix("$").lstrip(".")
            why = f"{where}: {_message(error)}" if error.absolute_path else _message(error)
            raise InvalidInput(lazy_message("This is not a JSON Schema. %(why)s", why=why))
        registry, address = _register(schema)
        parts = list(_parts(schema, registry.resolver(address), DRAFT202012.detect(schema)))
        _check_references(parts)
        _check_patterns(parts)
        # With the document as its root the validator would search it for each reference by name.
        validator: Validator = draft({"$ref": address}, registry=registry)
        _best_error(validator, None)  # raises for a circular reference
    except RecursionError:
        words = lazy_message("The schema is nested too deeply, or refers to itself.")
        raise InvalidInput(words) from None
    except keywords.TooManySteps:
        words = lazy_message(
            "The schema takes too long to use. Write it with fewer references and expressions."
        )
        raise InvalidInput(words) from None
    except _UNUSABLE as unusable:
        words = lazy_message("This schema cannot be used: %(why)s", why=_first_line(unusable))
        raise InvalidInput(words) from None
    return Schema(validator, quick_validator(schema))


def accepts(schema: Schema, value: Any) -> bool:
    """True if the quick validator accepts the value, within milliseconds. If False, call
    `first_error`. Raises RecursionError for a value that is nested too deeply."""
    return schema.quick is not None and schema.quick.accepts(value, len(msgspec.json.encode(value)))


def first_error(schema: Schema, value: Any) -> Fault | None:
    """The fault of a value, or None. Raises RecursionError for a value that is nested too
    deeply."""
    size = len(msgspec.json.encode(value))
    if schema.quick is not None and schema.quick.accepts(value, size):
        return None
    try:
        keywords.begin_steps(size)
        error = _best_error(schema.validator, value)
    except keywords.TooManySteps:
        return Fault("", _TOO_MANY_STEPS)
    except (*_UNUSABLE, InvalidInput) as unusable:  # a schema is not tried with every value
        return Fault("", f"the schema cannot be used for it: {_first_line(unusable)}")
    return None if error is None else Fault(error.json_path.removeprefix("$"), _message(error))


def _best_error(validator: Validator, value: Any) -> ValidationError | None:
    return best_match(islice(validator.iter_errors(value), _MAX_COMPARED))


def _message(error: ValidationError) -> str:
    text = str(error.message)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:_MAX_CHARACTERS]


def _register(document: Mapping[str, Any]) -> tuple[Registry[Any], str]:
    """A registry with the document and what has an address or a name in it, and its address."""
    root = DRAFT202012.detect(document).create_resource(document)
    address = urldefrag(root.id() or "")[0] or _UNNAMED
    opaque = Registry().with_resource(address, Resource.opaque(document)).crawl()
    try:
        registry: Registry[Any] = Registry().with_resource(address, root).crawl()
    except (AttributeError, TypeError):  # the library stumbles over arrays in `dependencies`
        return opaque, address
    # A part with the address of the whole document has taken its place: no address counts then.
    return registry if registry[address].contents is document else opaque, address


def _parts(
    part: Any, resolver: Any, specification: Specification[Any], is_mapping: bool = False
) -> Iterator[_Part]:
    """The part, if it is an object, and the objects in it. If `is_mapping`, the part holds schemas
    by name and has no keywords."""
    if isinstance(part, list):
        for below in part:
            yield from _parts(below, resolver, specification)
    if not isinstance(part, Mapping):
        return
    # AttributeError: its `$id` is no text, or it is in a value. Unresolvable: the library takes no
    # `$id` from this place, so references have the base of the part around it.
    with suppress(AttributeError, Unresolvable):
        inner_resolver = resolver.in_subresource(specification.create_resource(part))
        inner_resolver.lookup("#")
        resolver = inner_resolver
    yield part, resolver
    for name, below in part.items():
        is_value = not is_mapping and name in _VALUES
        is_next_mapping = not is_mapping and name in _MAPPINGS
        yield from _parts(below, None if is_value else resolver, specification, is_next_mapping)


def _check_references(parts: Sequence[_Part]) -> None:
    """Raises InvalidInput for a reference that leads nowhere or out of the document."""
    for part, resolver in parts:
        for name in _REFERENCES:
            if resolver is None or not isinstance(reference := part.get(name), str):
                continue
            words = _("%(reference)s leads nowhere in this schema.")
            try:
                target = resolver.lookup(reference).contents
            # TypeError: into a number. ValueError: into a list.
            except (Unresolvable, TypeError, ValueError) as error:
                if type(error) is Unresolvable:
                    words = _("%(reference)s: references to other documents are not followed.")
                raise InvalidInput(lazy_message(words, reference=reference)) from None
            if not isinstance(target, Mapping | bool):
                words = _("%(reference)s leads to what is no schema.")
                raise InvalidInput(lazy_message(words, reference=reference))


def _check_patterns(parts: Sequence[_Part]) -> None:
    """Raises InvalidInput for a regular expression that cannot be matched in linear time."""
    # A reference may lead into a value, so its expressions count, too. An expression there that RE2
    # does not know is no fault until then: only our functions match it, and refuse it.
    is_plain_only = any("unevaluatedProperties" in part for part, _resolver in parts)
    for part, resolver in parts:
        by_pattern = part.get("patternProperties")
        names = list(by_pattern) if isinstance(by_pattern, Mapping) else []
        pattern = part.get("pattern")
        for expression in [*names, pattern] if isinstance(pattern, str) else names:
            try:
                instructions = patterns.instructions(expression)
            except InvalidInput:
                if resolver is not None:
                    raise
                continue
            keywords.spend(1 + instructions // _INSTRUCTIONS_A_STEP)
        for pattern in names:
            # The library matches names for unevaluatedProperties with a backtracking engine.
            if is_plain_only and not _PLAIN_PATTERN.fullmatch(pattern):
                words = _(
                    "%(pattern)s: in a schema with unevaluatedProperties, patternProperties may "
                    "name the beginning, the end or a part of a name, such as ^x-"
                )
                raise InvalidInput(lazy_message(words, pattern=repr(pattern)))
