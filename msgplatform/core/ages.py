"""Ages in words, with one unit."""

from __future__ import annotations

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


def age(seconds: float | None) -> str:
    """95 → `1 min`; None → a dash."""
    if seconds is None:
        return "–"
    for size, name in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)} {name}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{int(seconds)} s"
