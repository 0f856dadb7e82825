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

import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

import msgspec
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from msgplatform.core.errors import InvalidInput
from msgplatform.core.json import patterns
from msgplatform.core.json.values import depth, map_leaves
from msgplatform.core.lazy_text import translate_text
from notify.subscriptions import filter_conditions
from notify.subscriptions.filter_conditions import OPERATORS, AllOf, Condition, Node, is_number

# The attributes of an event with which a path may begin: CloudEvents' attributes, and the channel.
ROOTS = ("data", "type", "channel", "id", "source", "time")
MAX_BYTES = 8 * 1024  # of a document as JSON
MAX_CONDITIONS = 100
MAX_INSTRUCTIONS = 1_000  # of a regular expression: RE2 tries all for each character
_STEP = re.compile(r"(?P<name>[^.\[\]]+)|\[(?P<index>[0-9]{1,6})\]")
_PATH = re.compile(r"[^.\[\]]+(\[[0-9]{1,6}\])*(\.[^.\[\]]+(\[[0-9]{1,6}\])*)*")


class _Reader(msgspec.Struct):
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
                nodes.append(filter_conditions.AnyOf(parts) if name == "$or" else AllOf(parts))
            elif name == "$not":
                node = self.member(inner, inner_place, prefix)
                nodes.append(filter_conditions.Negation(node, prefix, inner))
            elif name.startswith("$") and name != "$" and not name.startswith("$."):
                nodes.append(self.operator(name, inner, inner_place, prefix))
            else:
                path = f"{prefix}.{name}" if prefix else name
                nodes.append(self.member(inner, inner_place, path))
        return nodes[0] if len(nodes) == 1 else AllOf(nodes)

    def member(self, inner: Any, place: str, path: str) -> Node:
        if isinstance(inner, Mapping) and inner:
            return self.document(inner, place, path)
        return self.operator("$eq", inner, place, path)

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
        operand = map_leaves(operand, float, lambda number: _exact(number, place))
        if name == "$exist":
            if not isinstance(operand, bool):
                raise _fault(place, _("write true or false"))
            return Condition(path, steps, name, operand, lambda values: bool(values) is operand)
        if name not in OPERATORS:
            names = ", ".join([*OPERATORS, "$exist", "$or", "$and", "$not"])
            raise _fault(place, _("there is no such operator; use one of %s") % names)
        kind = OPERATORS[name].kind
        is_element = name == "$contains" and (is_number(operand) or isinstance(operand, bool))
        if kind == "list" and not isinstance(operand, list):
            raise _fault(place, _("write a list of values"))
        if kind == "text" and not isinstance(operand, str) and not is_element:
            raise _fault(place, _("write a text"))
        if kind == "ordered" and not is_number(operand) and not isinstance(operand, str):
            raise _fault(place, _("write a number or a text"))
        size = 1 if name == "$contains" else 0
        if name == "$regex":
            try:
                size = patterns.instructions(operand)
            except InvalidInput as error:
                raise _fault(place, str(translate_text(error.args[0]))) from None
            if size > MAX_INSTRUCTIONS:
                raise _fault(place, _("the regular expression is too large"))
        test = filter_conditions.condition_test(name, operand)
        sign, is_negated = OPERATORS[name].sign, OPERATORS[name].is_negated
        return Condition(path, steps, sign, operand, test, is_negated, size)


def _exact(number: float, place: str) -> Decimal:
    """A number of an operand. Raises ValidationError for a number that no message can have."""
    if not math.isfinite(number):
        raise _fault(place, _("the number is too large"))
    return Decimal(repr(number))


def _fault(place: str, words: str) -> ValidationError:
    return ValidationError(f"{place}: {words}." if place else f"{words}.")


def check(value: Any) -> None:
    """Raises ValidationError with place and reason for a document that is no filter."""
    compiled(value)


def compiled(value: Any) -> Node | None:
    """The filter of a document; None for None and {}, which match every message. Raises
    ValidationError."""
    if value is None or value == {}:
        return None
    # Operands too: they are compared level by level, and MariaDB stores no more than 31.
    max_depth = filter_conditions.MAX_DEPTH
    if depth(value) > max_depth + 1:
        raise _fault("", _("more than %d objects and lists in one another") % max_depth)
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
        return compiled(filter_conditions.DECODER.decode(text))
    except (ValidationError, msgspec.DecodeError, ArithmeticError, RecursionError) as error:
        raise ValueError(str(error)) from None
