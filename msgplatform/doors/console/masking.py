"""What a search and the page of a message show to people who may not see personal data.

A flow says everything; here the same shapes are masked, whatever they hold: a field whose name ends
with "body" is a content of its own, every other text a sentence in which only telephone numbers and
addresses are masked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from django.http import HttpRequest
from django.utils.safestring import SafeString

from msgplatform.core import personal
from msgplatform.doors.admin import sees_personal

T = TypeVar("T")
_KEPT = ("id", "cursor", "url", "permission")
# A command that repeats a message needs its content.
_LEFT_OUT = ("call",)


def masked(part: T) -> T:
    """A flow's `Page` or `Hit`, or a part of one, with its personal data masked."""
    row: Any = part
    masked_values: dict[str, Any] = {}
    for field in fields(row):
        value = getattr(row, field.name)
        if field.name.endswith("body") and isinstance(value, str):
            masked_values[field.name] = personal.text(value)
        elif field.name in _LEFT_OUT:
            masked_values[field.name] = None
        elif field.name not in _KEPT:
            masked_values[field.name] = _value(value)
    for name in ("title", "why"):
        if text := masked_values.get(f"masked_{name}"):
            masked_values[name] = text
    return replace(row, **masked_values)  # type: ignore[no-any-return]


def as_seen(request: HttpRequest, parts: Iterable[T]) -> list[T]:
    """These parts as this person may see them."""
    return list(parts) if sees_personal(request) else [masked(part) for part in parts]


def _value(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return masked(value)
    # A link that a flow has made names a row, and would no longer lead there.
    if isinstance(value, str) and not isinstance(value, SafeString):
        return personal.in_sentence(value)
    if isinstance(value, Mapping):
        return {name: _value(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_value(each) for each in value]
    return value
