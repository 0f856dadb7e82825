"""Say in words why an event does not get through a filter."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from django.utils.translation import gettext as _

from notify.subscriptions.filter_conditions import (
    MAX_DEPTH,
    MAX_WORK,
    AllOf,
    AnyOf,
    Condition,
    Event,
    Negation,
    Node,
    TooLarge,
)

_MAX_SHOWN = 60  # characters of a value in a reason


class Mismatch(NamedTuple):
    """The condition that an event does not meet, as sentences; `masked` is without its values, and
    without those of the filter that it is said to have."""

    reason: str
    masked: str


def mismatch(node: Node, event: Event | None) -> Mismatch | None:
    """Why an event does not get through; None if it does."""
    try:
        if event is not None:
            event.remaining = MAX_WORK
            if node.matches(event):
                return None
            event.remaining = MAX_WORK * MAX_DEPTH  # each `$or` asks what is below it once more
            return _mismatch(node, event)
    except TooLarge:
        pass
    reason = _("The payload is too large, or has a number too large, to be compared")
    return Mismatch(reason, reason)


def _mismatch(node: Node, event: Event) -> Mismatch | None:
    match node:
        case AllOf(nodes):
            return next(filter(None, (_mismatch(part, event) for part in nodes)), None)
        case AnyOf(nodes):
            if node.matches(event):
                return None
            reasons = [why for part in nodes if (why := _mismatch(part, event))]
            return Mismatch(*(_("; and ").join(texts) for texts in zip(*reasons, strict=True)))
        case Negation(_node, path, document):
            if node.matches(event):
                return None
            words = _("%s holds, and must not")
            text, masked_text = f"{path} {_shown(document)}", f"{path} $not"
            return Mismatch(words % text.strip(), words % masked_text.strip())
        case Condition():
            return _of_condition(node, event)


def _of_condition(node: Condition, event: Event) -> Mismatch | None:
    values = node.values(event)
    if node.test(values):
        return None
    words = {"path": node.path, "sign": node.sign, "operand": _shown(node.operand)}
    masked_words = words | ({"operand": "…"} if node.is_negated else {})
    masked = _("%(path)s is not %(sign)s %(operand)s") % masked_words
    if node.sign == "$exist":
        reason = _("%s is there") if values else _("%s is not there")
        return Mismatch(reason % node.path, reason % node.path)
    if not values:
        return Mismatch(_("%s is not there") % node.path, masked)
    words["value"] = ", ".join(map(_shown, values[:3])) + (", …" if len(values) > 3 else "")
    return Mismatch(_("%(path)s %(value)s is not %(sign)s %(operand)s") % words, masked)


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, default=float)
    except RecursionError:  # of a payload that could just be read
        return "…"
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"
