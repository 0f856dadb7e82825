"""JSON Schema: whether a schema can be used, and what is wrong with a value.

Draft 2020-12, unless `$schema` names another draft. References lead to places of the same document
only: nothing is ever fetched. `format` is a note for people, as the specification has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

import msgspec
from django.utils.translation import gettext_noop as _
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, UnknownType, ValidationError, best_match
from jsonschema.protocols import Validator
from jsonschema.validators import extend, validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from msgplatform.core.errors import InvalidInput
from msgplatform.core.said import say

MAX_SCHEMA_BYTES = 64 * 1024
# One error is shown; it is the best of so many.
_COMPARED = 20
_MAX_WORDS = 300  # an error may quote the whole value
_REFERENCES = ("$ref", "$dynamicRef")
# What the libraries raise when a reference leads to what is no schema (an address of its own that a
# part of the schema has, `$id`, changes where references lead), and for a number beyond a float.
_UNUSABLE = (
    Unresolvable, UnknownType, ArithmeticError, AttributeError, LookupError, TypeError, ValueError,
)  # fmt: skip


class Wrong(NamedTuple):
    """What is wrong with a value; `path` such as `.lines[2].amount`, '' for the value itself."""

    path: str
    reason: str


def compiled(schema: Mapping[str, Any]) -> Validator:
    """A validator, which any thread may use. Raises InvalidInput saying what is wrong with the
    schema."""
    if len(msgspec.json.encode(schema)) > MAX_SCHEMA_BYTES:
        most = MAX_SCHEMA_BYTES // 1024
        raise InvalidInput(say(_("A schema may have %(most)d KiB at most."), most=most))
    known: Any = _draft(schema)
    try:
        known.check_schema(schema)
        _check_references(schema)
        validator: Validator = _linear(known)(schema, registry=Registry())
        _best(validator, None)  # one that refers to itself in a circle never ends
    except SchemaError as error:
        where = f"{error.json_path.removeprefix('$').lstrip('.')}: " if error.absolute_path else ""
        words = say(_("This is not a JSON Schema. %(why)s"), why=f"{where}{_words(error)}")
        raise InvalidInput(words) from None
    except RecursionError:
        words = say(_("The schema is nested too deeply, or refers to itself."))
        raise InvalidInput(words) from None
    except _UNUSABLE as error:
        words = say(_("This schema cannot be used: %(why)s"), why=_why(error))
        raise InvalidInput(words) from None
    return validator


def first_error(validator: Validator, value: Any) -> Wrong | None:
    """What is wrong with a value, or None. Raises RecursionError for one that is too deep."""
    try:
        error = _best(validator, value)
    except _UNUSABLE as unusable:  # by this value; a schema is not tried with every one
        return Wrong("", f"the schema cannot be used for it: {_why(unusable)}")
    return None if error is None else Wrong(error.json_path.removeprefix("$"), _words(error))


def _draft(schema: Mapping[str, Any]) -> Any:
    try:
        found: type[Validator] = validator_for(schema, default=Draft202012Validator)
    except (AttributeError, TypeError, ValueError):
        known = "https://json-schema.org/draft/2020-12/schema"
        words = say(_("$schema is the address of a draft: %(draft)s"), draft=known)
        raise InvalidInput(words) from None
    return found


def _best(validator: Validator, value: Any) -> ValidationError | None:
    return best_match(islice(validator.iter_errors(value), _COMPARED))


def _words(error: ValidationError | SchemaError) -> str:
    text = str(error.message)
    return text if len(text) <= _MAX_WORDS else f"{text[:_MAX_WORDS]}…"


def _why(error: Exception) -> str:
    return str(error).partition("\n")[0][:_MAX_WORDS]


def _check_references(schema: Mapping[str, Any]) -> None:
    """Raises InvalidInput for a reference that leads nowhere or out of the document."""
    resolver = Registry().resolver_with_root(DRAFT202012.create_resource(schema))
    for reference in set(_references(schema)):
        if not reference.startswith("#"):
            words = _("%(reference)s: references to other documents are not followed.")
            raise InvalidInput(say(words, reference=reference))
        try:
            found = resolver.lookup(reference).contents
        except (Unresolvable, TypeError, ValueError):  # the last two: into a number, into a list
            words = _("%(reference)s leads nowhere in this schema.")
            raise InvalidInput(say(words, reference=reference)) from None
        if not isinstance(found, Mapping | bool):
            words = _("%(reference)s leads to what is no schema.")
            raise InvalidInput(say(words, reference=reference))


def _references(part: Any) -> Iterator[str]:
    if isinstance(part, Mapping):
        for name, below in part.items():
            if name in _REFERENCES and isinstance(below, str):
                yield below
            yield from _references(below)
    elif isinstance(part, list):
        for below in part:
            yield from _references(below)


@lru_cache(maxsize=16)
def _linear(known: Any) -> Any:
    """With a `uniqueItems` whose time grows with the length of a list, not with its square."""
    return extend(known, {"uniqueItems": _unique_items})


def _unique_items(
    validator: Validator, wanted: bool, items: Any, schema: Any
) -> Iterator[ValidationError]:
    if wanted and isinstance(items, list):
        encoded = {msgspec.json.encode(item, order="deterministic") for item in items}
        if len(encoded) < len(items):
            yield ValidationError("the items of this list are not all different")
