"""The parts of a filter on payloads, and the event that they are asked about.

A maker asks them for each message. `payload_filter` makes them from documents, and
`notify.messages.filtered` says in words which part an event does not meet.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from msgplatform.core.errors import Permanent
from msgplatform.core.json import patterns

MAX_DEPTH = 10  # levels of nested objects and lists
# Elements of arrays that one condition compares. A message with more does not match: a payload may
# have a hundred thousand elements, and a system a thousand filters.
MAX_ELEMENTS = 10_000
# Elements that all conditions of a filter look at together. A search by a regular expression counts
# as an element for every _SEARCH_STEPS steps, each an instruction on a character. RE2 takes 3 µs.
MAX_WORK = 100_000
_SEARCH_STEPS = 512
_MAX_EXPONENT = 5_000  # of an operand: integers have 4,300 digits at most, floats less
MAX_SEARCHED = 10_000  # characters of a text that a regular expression searches
# Exact numbers, because a float's rounding would decide about money.
DECODER = msgspec.json.Decoder(float_hook=Decimal)


class TooLarge(Permanent):
    """A part of a payload is too large for a filter: the message does not match."""


class Event(dict[str, Any]):
    """The attributes of an event by name. `remaining` is the work that its present filter may still
    take."""

    __slots__ = ("remaining",)

    remaining: int

    def spend(self, work: int) -> None:
        """Raises TooLarge."""
        self.remaining -= work
        if self.remaining < 0:
            raise TooLarge(f"a filter that looks at more than {MAX_WORK} elements")


class AllOf(msgspec.Struct, frozen=True):
    nodes: Sequence[Node]

    def matches(self, event: Event) -> bool:
        return all(node.matches(event) for node in self.nodes)


class AnyOf(msgspec.Struct, frozen=True):
    nodes: Sequence[Node]

    def matches(self, event: Event) -> bool:
        return any(node.matches(event) for node in self.nodes)


class Negation(msgspec.Struct, frozen=True):
    """Matches an event that `node` does not match. `document`, which stands below `path`, is what
    `node` was made of."""

    node: Node
    path: str
    document: Any

    def matches(self, event: Event) -> bool:
        return not self.node.matches(event)


class Condition(msgspec.Struct, frozen=True):
    """One operator at one path. `test` gets the values at the path."""

    path: str
    steps: Sequence[str | int]
    sign: str  # the operator in a reason
    operand: Any
    test: Callable[[Sequence[Any]], bool]
    is_negated: bool = False
    instructions: int = 0  # for each character of a text that is searched

    def matches(self, event: Event) -> bool:
        return self.test(self.values(event))

    def values(self, event: Event) -> Sequence[Any]:
        """The values at the path. Raises TooLarge."""
        values = _values(event, self.steps)
        if self.instructions:
            texts = chain(values, *(value for value in values if isinstance(value, list)))
            size = sum(len(text) for text in texts if isinstance(text, str))
            event.spend(size * self.instructions // _SEARCH_STEPS)
        return values


Node = AllOf | AnyOf | Negation | Condition  # a part of a filter


def _values(event: Event, steps: Sequence[str | int]) -> Sequence[Any]:
    """The values that a path leads to: none if it is not there, one, or one for each element that
    `$` stands for. Raises TooLarge."""
    values: Sequence[Any] = (event,)
    for step in steps:
        if step == "$":
            arrays = [value for value in values if isinstance(value, list)]
            _count_work(event, arrays)
            values = list(chain.from_iterable(arrays))
        elif isinstance(step, int):
            values = [v[step] for v in values if isinstance(v, list) and step < len(v)]
        else:
            values = [v[step] for v in values if isinstance(v, dict) and step in v]
        if not values:
            break
    _count_work(event, values)
    return values


def _count_work(event: Event, values: Sequence[Any]) -> None:
    count = sum(len(value) for value in values if isinstance(value, list))
    if count > MAX_ELEMENTS:
        raise TooLarge(f"more than {MAX_ELEMENTS} elements")
    event.spend(1 + count)


def _equal(value: Any, other: Any) -> bool:
    """Equality of JSON values: by type, numbers by value."""
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(_equal(value[k], other[k]) for k in value)
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(_equal, value, other))
    return bool(value == other)


def is_number(value: Any) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def _in_order(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """A comparison of two numbers or two texts; texts by their code points."""

    def test(value: Any, operand: Any) -> bool:
        if isinstance(value, str) and isinstance(operand, str):
            return compare(value, operand)
        return is_number(value) and is_number(operand) and compare(value, operand)

    return test


def _of_texts(compare: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    return lambda value, operand: (
        isinstance(value, str) and isinstance(operand, str) and compare(value, operand)
    )


def _matches_regex(text: str, pattern: str) -> bool:
    if len(text) > MAX_SEARCHED:
        raise TooLarge(f"a text of more than {MAX_SEARCHED} characters")
    return patterns.matches(pattern, text)


class _Operator(NamedTuple):
    """`kind`: the valid operands, in words. `is_negated`: True for an operator that matches where
    its opposite does not."""

    sign: str
    kind: str
    test: Callable[[Any, Any], bool]
    is_negated: bool = False


def _is_one_of(value: Any, operand: Collection[Any]) -> bool:
    """True if the value is among the choices, whose keys are `operand`."""
    return _key(value) in operand


def _key(value: Any, level: int = 0) -> Any:
    """A key of a JSON value, the same for equal values, so that a choice is found without comparing
    all. A value that no operand can be, such as a deeper value, has a key that equals no other."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | dict):
        if level > MAX_DEPTH:
            return object()
        if isinstance(value, list):
            return ("list", *(_key(item, level + 1) for item in value))
        return frozenset((name, _key(inner, level + 1)) for name, inner in value.items())
    # The hash of a power takes longer the higher it is. Zero has the exponent it was written with.
    if isinstance(value, Decimal) and value and abs(value.adjusted()) > _MAX_EXPONENT:
        return object()
    return type(value) is bool, value


OPERATORS = {
    "$eq": _Operator("=", "", _equal),
    "$neq": _Operator("≠", "", _equal, True),
    "$gt": _Operator(">", "ordered", _in_order(operator.gt)),
    "$gte": _Operator("≥", "ordered", _in_order(operator.ge)),
    "$lt": _Operator("<", "ordered", _in_order(operator.lt)),
    "$lte": _Operator("≤", "ordered", _in_order(operator.le)),
    "$in": _Operator("in", "list", _is_one_of),
    "$nin": _Operator("outside of", "list", _is_one_of, True),
    "$startsWith": _Operator("$startsWith", "text", _of_texts(str.startswith)),
    "$endsWith": _Operator("$endsWith", "text", _of_texts(str.endswith)),
    "$contains": _Operator("$contains", "text", _of_texts(str.__contains__)),
    "$regex": _Operator("$regex", "text", _of_texts(_matches_regex)),
}


def condition_test(operator_name: str, operand: Any) -> Callable[[Sequence[Any]], bool]:
    compare, is_negated = OPERATORS[operator_name].test, OPERATORS[operator_name].is_negated
    # An array matches by itself or by an element.
    compare_element = _equal if operator_name == "$contains" else compare
    if OPERATORS[operator_name].kind == "list":
        operand = frozenset(map(_key, operand))
    is_array = isinstance(operand, list) and operator_name in ("$eq", "$neq")

    def holds(values: Sequence[Any]) -> bool:
        for value in values:
            if compare(value, operand):
                return not is_negated
            if (
                isinstance(value, list)
                and not is_array
                and any(compare_element(element, operand) for element in value)
            ):
                return not is_negated
        return is_negated

    return holds


def event_of(body: str, message_id: int, channel: str, source: str) -> Event | None:
    """The event of a body of Standard Webhooks (`orders.body`), for filters. None for a payload
    that cannot be compared, such as one with a number beyond all bounds."""
    try:
        document = DECODER.decode(body)
    except (msgspec.DecodeError, ArithmeticError, RecursionError, UnicodeError):
        return None
    return Event(
        data=document["data"], type=document["type"], time=document["timestamp"],
        channel=channel, id=str(message_id), source=source,
    )  # fmt: skip


def matches(node: Node, event: Event | None) -> bool:
    """True if an event gets through; never one that cannot be compared."""
    if event is None:
        return False
    event.remaining = MAX_WORK
    try:
        return node.matches(event)
    except TooLarge:
        return False
