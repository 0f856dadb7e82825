"""The filter of a subscription on payloads: a JSON document of the operators that Convoy and
Outpost share.

    {"data": {"total": {"$gt": 100}, "items.$.sku": {"$in": ["A-1", "A-2"]}}, "type": "order.paid"}

A member is a path with a condition, or `$or`, `$and` (lists of documents), `$not` (a document);
all members must match. A path is written by nesting or as `a.b[0].c`; `$` stands for any element of
an array. A path begins with an attribute of the event (`ROOTS`). A condition is a value, which
means `$eq`, or an object of operators. If a path leads to an array and the operand is no array, any
element may match. Values have types: "12" is not 12. Numbers are equal by value, however they are
written. A missing path matches only `$neq`, `$nin`, `$not` and `{"$exist": false}`; null is a
value.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple, Protocol

import msgspec
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from msgplatform.core.errors import InvalidInput, Permanent
from msgplatform.core.json import patterns
from msgplatform.core.json.values import depth
from msgplatform.core.lazy_text import translated

# The attributes of an event with which a path may begin: CloudEvents' attributes, and the channel.
ROOTS = ("data", "type", "channel", "id", "source", "time")
MAX_BYTES = 8 * 1024  # of a document as JSON
MAX_DEPTH = 10  # levels of nested objects and lists
MAX_CONDITIONS = 100
# Elements of arrays that one condition compares. A message with more does not match: a payload may
# have a hundred thousand elements, and a system a thousand filters.
MAX_ELEMENTS = 10_000
# Elements that all conditions of a filter look at together. So many characters that are searched,
# each by all instructions of a regular expression, count as one: RE2 takes 3 µs for them at worst.
MAX_WORK = 100_000
_INSTRUCTIONS = 512
_MAX_EXPONENT = 5_000  # of an operand: integers have 4,300 digits at most, floats less
_MAX_SHOWN = 60  # characters of a value in a reason
MAX_INSTRUCTIONS = 1_000  # of a regular expression: RE2 tries all for each character
MAX_SEARCHED = 10_000  # characters of a text that a regular expression searches
_STEP = re.compile(r"(?P<name>[^.\[\]]+)|\[(?P<index>[0-9]{1,6})\]")
_PATH = re.compile(r"[^.\[\]]+(\[[0-9]{1,6}\])*(\.[^.\[\]]+(\[[0-9]{1,6}\])*)*")
# Exact numbers, because a float's rounding would decide about money.
_DECODER = msgspec.json.Decoder(float_hook=Decimal)


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


class Mismatch(NamedTuple):
    """The condition that an event does not meet, as sentences; `masked` is without its values, and
    without those of the filter that it is said to have."""

    reason: str
    masked: str


class Node(Protocol):
    """A part of a filter."""

    def matches(self, event: Event) -> bool: ...

    def mismatch(self, event: Event) -> Mismatch | None:
        """None if the event matches."""


@dataclass(frozen=True, slots=True)
class _All:
    nodes: Sequence[Node]

    def matches(self, event: Event) -> bool:
        return all(node.matches(event) for node in self.nodes)

    def mismatch(self, event: Event) -> Mismatch | None:
        return next(filter(None, (node.mismatch(event) for node in self.nodes)), None)


@dataclass(frozen=True, slots=True)
class _Any:
    nodes: Sequence[Node]

    def matches(self, event: Event) -> bool:
        return any(node.matches(event) for node in self.nodes)

    def mismatch(self, event: Event) -> Mismatch | None:
        if self.matches(event):
            return None
        parts = [part for node in self.nodes if (part := node.mismatch(event))]
        return Mismatch(*(_("; and ").join(texts) for texts in zip(*parts, strict=True)))


@dataclass(frozen=True, slots=True)
class _Not:
    node: Node
    text: str
    masked_text: str

    def matches(self, event: Event) -> bool:
        return not self.node.matches(event)

    def mismatch(self, event: Event) -> Mismatch | None:
        if self.matches(event):
            return None
        words = _("%s holds, and must not")
        return Mismatch(words % self.text, words % self.masked_text)


@dataclass(frozen=True, slots=True)
class _Condition:
    """One operator at one path. `test` gets the values at the path."""

    path: str
    steps: Sequence[str | int]
    sign: str  # the operator in a reason
    operand: Any
    test: Callable[[Sequence[Any]], bool]
    is_negated: bool = False
    instructions: int = 0  # for each character of a text that is searched

    def matches(self, event: Event) -> bool:
        return self.test(self._looked_at(event))

    def _looked_at(self, event: Event) -> Sequence[Any]:
        values = _values(event, self.steps)
        if self.instructions:
            texts = chain(values, *(value for value in values if isinstance(value, list)))
            size = sum(len(text) for text in texts if isinstance(text, str))
            event.spend(size * self.instructions // _INSTRUCTIONS)
        return values

    def mismatch(self, event: Event) -> Mismatch | None:
        values = self._looked_at(event)
        if self.test(values):
            return None
        words = {"path": self.path, "sign": self.sign, "operand": _shown(self.operand)}
        masked_words = words | ({"operand": "…"} if self.is_negated else {})
        masked = _("%(path)s is not %(sign)s %(operand)s") % masked_words
        if self.sign == "$exist":
            reason = _("%s is there") if values else _("%s is not there")
            return Mismatch(reason % self.path, reason % self.path)
        if not values:
            return Mismatch(_("%s is not there") % self.path, masked)
        words["value"] = ", ".join(map(_shown, values[:3])) + (", …" if len(values) > 3 else "")
        return Mismatch(_("%(path)s %(value)s is not %(sign)s %(operand)s") % words, masked)


def _values(event: Event, steps: Sequence[str | int]) -> Sequence[Any]:
    """The values that a path leads to: none if it is not there, one, or one for each element that
    `$` stands for. Raises TooLarge."""
    values: Sequence[Any] = (event,)
    for step in steps:
        if step == "$":
            arrays = [value for value in values if isinstance(value, list)]
            _bound(event, arrays)
            values = list(chain.from_iterable(arrays))
        elif isinstance(step, int):
            values = [v[step] for v in values if isinstance(v, list) and step < len(v)]
        else:
            values = [v[step] for v in values if isinstance(v, dict) and step in v]
        if not values:
            break
    _bound(event, values)
    return values


def _bound(event: Event, values: Sequence[Any]) -> None:
    count = sum(len(value) for value in values if isinstance(value, list))
    if count > MAX_ELEMENTS:
        raise TooLarge(f"more than {MAX_ELEMENTS} elements")
    event.spend(1 + count)


def _equal(left: Any, right: Any) -> bool:
    """Equality of JSON values: by type, numbers by value."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_equal(left[k], right[k]) for k in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_equal, left, right))
    return bool(left == right)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def _in_order(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """A comparison of two numbers or two texts; texts by their code points."""

    def test(value: Any, operand: Any) -> bool:
        if isinstance(value, str) and isinstance(operand, str):
            return compare(value, operand)
        return _is_number(value) and _is_number(operand) and compare(value, operand)

    return test


def _of_texts(compare: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    return lambda value, operand: (
        isinstance(value, str) and isinstance(operand, str) and compare(value, operand)
    )


def _is_found(text: str, pattern: str) -> bool:
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
    """`operand` are the keys of the choices."""
    return _key(value) in operand


def _key(value: Any, level: int = 0) -> Any:
    """A key of a JSON value, the same for equal ones: a choice is found without comparing all. One
    that no operand can be, such as a deeper one, has a key that is equal to no other."""
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


_OPERATORS = {
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
    "$regex": _Operator("$regex", "text", _of_texts(_is_found)),
}


def _test(operator_name: str, operand: Any) -> Callable[[Sequence[Any]], bool]:
    compare, is_negated = _OPERATORS[operator_name].test, _OPERATORS[operator_name].is_negated
    # Of the elements of an array, beside the value itself.
    compare_element = _equal if operator_name == "$contains" else compare
    if _OPERATORS[operator_name].kind == "list":
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


# -- reading a document --------------------------------------------------------------------------
@dataclass(slots=True)
class _Reader:
    """Makes nodes of a document, and counts the document's conditions."""

    conditions: int = 0

    def document(self, value: Any, place: str, prefix: str = "") -> Node:
        if not isinstance(value, Mapping):
            raise _fault(place, _('write an object such as {"data": {"total": {"$gt": 100}}}'))
        nodes: list[Node] = []
        for name, inner in value.items():
            inner_place = f"{place}.{name}" if place else name
            if name in ("$or", "$and"):
                if not isinstance(inner, list) or not inner:
                    raise _fault(inner_place, _("write a list of conditions"))
                parts = [
                    self.document(part, f"{inner_place}[{number}]", prefix)
                    for number, part in enumerate(inner)
                ]
                nodes.append(_Any(parts) if name == "$or" else _All(parts))
            elif name == "$not":
                nodes.append(self.negation(inner, inner_place, prefix))
            elif name.startswith("$") and name != "$" and not name.startswith("$."):
                nodes.append(self.operator(name, inner, inner_place, prefix))
            else:
                path = f"{prefix}.{name}" if prefix else name
                is_nested = isinstance(inner, Mapping) and bool(inner)
                nodes.append(
                    self.document(inner, inner_place, path)
                    if is_nested
                    else self.operator("$eq", inner, inner_place, path)
                )
        return nodes[0] if len(nodes) == 1 else _All(nodes)

    def negation(self, inner: Any, place: str, prefix: str) -> Node:
        node = (
            self.document(inner, place, prefix)
            if isinstance(inner, Mapping) and inner
            else self.operator("$eq", inner, place, prefix)
        )
        return _Not(node, f"{prefix} {_shown(inner)}".strip(), f"{prefix} $not".strip())

    def operator(self, name: str, operand: Any, place: str, path: str) -> Node:
        self.conditions += 1
        if self.conditions > MAX_CONDITIONS:
            raise _fault(place, _("more than %d conditions") % MAX_CONDITIONS)
        # The steps of a path such as data.items[0].sku.
        if not _PATH.fullmatch(path):
            raise _fault(place, _("write a path such as data.items[0].price or data.items.$.sku"))
        parts = [match["name"] or int(match["index"]) for match in _STEP.finditer(path)]
        if parts[0] not in ROOTS:
            raise _fault(place, _("a path begins with one of %s") % ", ".join(ROOTS))
        steps = tuple(parts)
        operand = _exact(operand, place)
        if name == "$exist":
            if not isinstance(operand, bool):
                raise _fault(place, _("write true or false"))
            return _Condition(path, steps, name, operand, lambda values: bool(values) is operand)
        if name not in _OPERATORS:
            names = ", ".join([*_OPERATORS, "$exist", "$or", "$and", "$not"])
            raise _fault(place, _("there is no such operator; use one of %s") % names)
        kind = _OPERATORS[name].kind
        is_element = name == "$contains" and (_is_number(operand) or isinstance(operand, bool))
        if kind == "list" and not isinstance(operand, list):
            raise _fault(place, _("write a list of values"))
        if kind == "text" and not isinstance(operand, str) and not is_element:
            raise _fault(place, _("write a text"))
        if kind == "ordered" and not _is_number(operand) and not isinstance(operand, str):
            raise _fault(place, _("write a number or a text"))
        size = 1 if name == "$contains" else 0
        if name == "$regex":
            try:
                size = patterns.instructions(operand)
            except InvalidInput as error:
                raise _fault(place, str(translated(error.args[0]))) from None
            if size > MAX_INSTRUCTIONS:
                raise _fault(place, _("the regular expression is too large"))
        test = _test(name, operand)
        sign, is_negated = _OPERATORS[name].sign, _OPERATORS[name].is_negated
        return _Condition(path, steps, sign, operand, test, is_negated, size)


def _exact(value: Any, place: str) -> Any:
    """The operand with exact numbers. Raises ValidationError for a value no message can have."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _fault(place, _("the number is too large"))
        return Decimal(repr(value))
    if isinstance(value, list):
        return [_exact(item, place) for item in value]
    if isinstance(value, Mapping):
        return {name: _exact(inner, place) for name, inner in value.items()}
    return value


def _fault(place: str, words: str) -> ValidationError:
    return ValidationError(f"{place}: {words}." if place else f"{words}.")


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, default=float)
    except RecursionError:  # of a payload that could just be read
        return "…"
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"


# -- what others use -----------------------------------------------------------------------------
def check(value: Any) -> None:
    """Raises ValidationError with place and reason for a document that is no filter."""
    compiled(value)


def compiled(value: Any) -> Node | None:
    """The filter of a document; None for None and {}, which match every message. Raises
    ValidationError."""
    if value is None or value == {}:
        return None
    # Operands too: they are compared level by level, and MariaDB stores no more than 31.
    if depth(value) > MAX_DEPTH + 1:
        raise _fault("", _("more than %d objects and lists in one another") % MAX_DEPTH)
    try:
        size = len(json.dumps(value, ensure_ascii=False, default=float).encode())
    except (TypeError, ValueError, OverflowError):
        raise ValidationError(_("This is not JSON that a filter can have.")) from None
    if size > MAX_BYTES:
        raise ValidationError(_("A filter has at most %d bytes.") % MAX_BYTES)
    return _Reader().document(value, "")


@lru_cache(maxsize=16_384)
def of_text(text: str) -> Node | None:
    """The filter of a stored document. Raises ValueError for an invalid document, which may have
    been stored by a statement: forms and the API check documents."""
    try:
        return compiled(_DECODER.decode(text))
    except (ValidationError, msgspec.DecodeError, ArithmeticError, RecursionError) as error:
        raise ValueError(str(error)) from None


def event(body: str, message_id: int, channel: str, source: str) -> Event | None:
    """What a filter looks at, from the body of Standard Webhooks (`orders.body`). None for a
    payload that cannot be compared, such as one with a number beyond all bounds."""
    try:
        document = _DECODER.decode(body)
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


def mismatch(node: Node, event: Event | None) -> Mismatch | None:
    """Why an event does not get through; None if it does."""
    try:
        if event is not None:
            event.remaining = MAX_WORK
            if node.matches(event):
                return None
            event.remaining = MAX_WORK * MAX_DEPTH  # each `$or` asks what is below it once more
            return node.mismatch(event)
    except TooLarge:
        pass
    reason = _("The payload is too large, or has a number too large, to be compared")
    return Mismatch(reason, reason)
