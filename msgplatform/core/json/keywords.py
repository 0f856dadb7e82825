"""The keywords of JSON Schema, each in bounded time: jsonschema's own functions, whose steps are
counted, and other functions for keywords whose time grows faster than the value.

A small schema can need years of work: references that double, alternatives in alternatives. So each
validation has a number of steps, and ends when the steps are used.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from decimal import Context, Decimal
from functools import lru_cache, partial
from typing import Any

import attrs
import msgspec
from jsonschema import TypeChecker
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend

from msgplatform.core.json import patterns

# The steps of any validation. A value adds a step for 2 of its bytes, and a step for 16, since the
# `$ref` at the root reads its entries once more. A step takes 1 to 5 microseconds. A value of 256
# KiB needs 70,000 steps as lines of an order with a schema for each field, and 165,000 as nothing
# but numbers.
_BASE_STEPS = 20_000


class TooManySteps(Exception):
    """A validation ended because it took more steps than its value may have."""


class _Steps(threading.local):
    """The steps of this thread's present validation."""

    remaining = 0
    factor = 1


_steps = _Steps()


def begin_steps(size: int) -> None:
    """Count the steps of this thread from now on, for a value of `size` bytes as JSON."""
    _steps.remaining, _steps.factor = _BASE_STEPS + size // 2 + size // 16, 1


def spend(steps: int) -> None:
    """Count steps. Raises TooManySteps."""
    _steps.remaining -= steps * _steps.factor
    if _steps.remaining < 0:
        raise TooManySteps


_Errors = Iterator[ValidationError]
_Keyword = Callable[[Any, Any, Any, Any], Any]
_CONTAINERS = (list, dict)
# Amounts of cheap work that count as one step.
_ENTRIES_A_STEP = 8  # read
_CHARACTERS_A_STEP = 64  # of an error
_INSTRUCTIONS_A_STEP = 512  # of a regular expression
_VALUES_A_STEP = 4  # compared
_BYTES_A_STEP = 32  # encoded
_BITS_A_STEP = 4096  # divided
# Digits of a quotient: JSON's integers have 4,300 at most, floats up to 324 behind the point.
_DECIMALS = Context(prec=5_000)
_MAX_WHOLE = 2**53  # below it a float holds each integer
_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")


@lru_cache(maxsize=16)
def bounded_class(draft: Any) -> Any:
    """A draft's validator class with these keywords."""
    bounded_keywords: dict[str, _Keyword] = {
        **FUNCTIONS,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "enum": partial(_compare, draft.VALIDATORS.get("enum")),
        "const": partial(_compare, draft.VALIDATORS.get("const")),
    }
    bounded_keywords |= {
        name: partial(_unevaluated, draft.VALIDATORS[name])
        for name in _UNEVALUATED if name in draft.VALIDATORS
    }  # fmt: skip
    keywords = {
        name: partial(_count_steps, bounded_keywords.get(name, keyword))
        for name, keyword in draft.VALIDATORS.items()
    }
    # jsonschema's own searches below `unevaluated…` begin with a test for a boolean.
    checker: TypeChecker = draft.TYPE_CHECKER.redefine("boolean", _is_boolean)
    return _with_keywords(draft, keywords, checker)


@lru_cache(maxsize=16)
def metaschema_class(draft: Any) -> Any:
    """A draft's validator class for schemas as values. Only FUNCTIONS count steps: all keywords of
    the metaschema would count more than a large schema may have, in a time that its size bounds."""
    return _with_keywords(draft, FUNCTIONS, None)


def _with_keywords(
    draft: Any, keywords: Mapping[str, _Keyword], checker: TypeChecker | None
) -> Any:
    validator_class: Any = extend(draft, keywords, type_checker=checker)
    # The library's `evolve` takes the library's own class for a part with `$schema`. This one keeps
    # the class, so the bounds hold wherever a reference leads.
    validator_class.evolve = attrs.evolve
    return validator_class


def _count_steps(
    keyword: _Keyword, validator: Any, value: Any, instance: Any, schema: Any
) -> _Errors:
    spend(1 + _steps_of_entries(value) + _steps_of_entries(instance))
    for error in keyword(validator, value, instance, schema) or ():
        spend(len(error.message) // _CHARACTERS_A_STEP)  # the error quotes the value
        yield error


def _steps_of_entries(value: Any) -> int:
    return len(value) // _ENTRIES_A_STEP if isinstance(value, _CONTAINERS) else 0


def _is_boolean(_checker: TypeChecker, value: Any) -> bool:
    spend(1)
    if isinstance(value, dict):
        for name in ("properties", "patternProperties", "prefixItems", "items"):
            spend(_steps_of_entries(value.get(name)))
    return isinstance(value, bool)


def _pattern(_validator: Any, pattern: str, text: Any, _schema: Any) -> _Errors:
    if isinstance(text, str) and not _matches(pattern, text):
        yield ValidationError(f"{text!r} does not match {pattern!r}")


def _matches(pattern: str, text: str) -> bool:
    spend(1 + patterns.instructions(pattern) * len(text) // _INSTRUCTIONS_A_STEP)
    return patterns.matches(pattern, text)


def _pattern_properties(
    validator: Any, subschemas: dict[str, Any], instance: Any, _schema: Any
) -> _Errors:
    if isinstance(instance, dict):
        for pattern, subschema in subschemas.items():
            for name, value in instance.items():
                if _matches(pattern, name):
                    yield from validator.descend(value, subschema, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, subschema: Any, instance: Any, schema: dict[str, Any]
) -> _Errors:
    if not isinstance(instance, dict):
        return
    properties, by_pattern = schema.get("properties", {}), schema.get("patternProperties", {})
    additional = [
        name for name in instance
        if name not in properties and not any(_matches(pattern, name) for pattern in by_pattern)
    ]  # fmt: skip
    if isinstance(subschema, dict):
        for name in additional:
            yield from validator.descend(instance[name], subschema, path=name)
    elif additional and subschema is False:
        names = ", ".join(repr(name) for name in sorted(additional))
        yield ValidationError(f"Additional properties are not allowed: {names}")


def _unique_items(_validator: Any, value: Any, items: Any, _schema: Any) -> _Errors:
    if value and isinstance(items, list):
        texts = [msgspec.json.encode(item, order="deterministic") for item in items]
        if any(b".0" in text for text in texts):  # 1 and 1.0 are one number
            texts = [msgspec.json.encode(_whole(item), order="deterministic") for item in items]
        spend(sum(map(len, texts)) // _BYTES_A_STEP)
        if len(set(texts)) < len(items):
            yield ValidationError("the items of this list are not all different")


def _whole(value: Any) -> Any:
    """The value with an integer for each float that is a whole number."""
    if isinstance(value, dict):
        return {name: _whole(below) for name, below in value.items()}
    if isinstance(value, list):
        return [_whole(below) for below in value]
    is_whole = isinstance(value, float) and abs(value) < _MAX_WHOLE and value.is_integer()
    return int(value) if is_whole else value


def _multiple_of(_validator: Any, factor: Any, number: Any, _schema: Any) -> _Errors:
    """Compute in decimals: 19.99 is a multiple of 0.01 in decimals, but not in binary."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        return
    spend(number.bit_length() // _BITS_A_STEP if isinstance(number, int) else 0)
    if _DECIMALS.remainder(_exact(number), _exact(factor)):
        yield ValidationError(f"{number!r} is not a multiple of {factor!r}")


def _exact(number: float) -> Decimal:
    return Decimal(number) if isinstance(number, int) else Decimal(repr(number))


# Keywords that need no other part of the schema.
FUNCTIONS: dict[str, _Keyword] = {
    "pattern": _pattern, "uniqueItems": _unique_items, "multipleOf": _multiple_of,
}  # fmt: skip


def _compare(keyword: _Keyword, validator: Any, value: Any, instance: Any, schema: Any) -> _Errors:
    spend(_count_values(value) // _VALUES_A_STEP)
    yield from keyword(validator, value, instance, schema)


def _count_values(value: Any) -> int:
    """The number of values in this value, including the value itself."""
    if not isinstance(value, _CONTAINERS):
        return 1
    return 1 + sum(map(_count_values, value.values() if isinstance(value, dict) else value))


def _unevaluated(
    keyword: _Keyword, validator: Any, value: Any, instance: Any, schema: Any
) -> _Errors:
    outer_factor = _steps.factor
    # The library looks for each entry in a list of all evaluated entries: a step counts that often.
    _steps.factor = outer_factor * (1 + _steps_of_entries(instance))
    try:
        errors = list(keyword(validator, value, instance, schema))
    finally:
        _steps.factor = outer_factor
    yield from errors
