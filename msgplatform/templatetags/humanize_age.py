"""Template filters that write ages with one unit."""

from __future__ import annotations

import time

from django import template

register = template.Library()

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


@register.filter
def age(seconds: float | None) -> str:
    """`95` → `1 min`; None → a dash."""
    if seconds is None:
        return "–"
    for size, name in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)} {name}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{int(seconds)} s"


@register.filter
def since(moment: float) -> str:
    """The age of a unix time."""
    return age(max(0.0, time.time() - moment))
