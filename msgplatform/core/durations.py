"""Durations that people write (`5 s`, `30 min`, `2 h`, `1 d`), and ages for readers."""

import re

from django.utils.translation import gettext as _, gettext_noop

from msgplatform.core.lazy_text import lazy_message, translate_text

_SECONDS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*([a-z]*)")
# The units of ages, largest first: seconds, and text.
_UNITS = (
    (86400, gettext_noop("%(number)d d")), (3600, gettext_noop("%(number)d h")),
    (60, gettext_noop("%(number)d min")), (1, gettext_noop("%(number)d s")),
)  # fmt: skip


def seconds(text: str, needs_unit: bool = False) -> int | float:
    """The seconds of a duration such as `5 min`. A number without a unit means seconds, unless the
    text `needs_unit`. Raises ValueError."""
    match = _DURATION.fullmatch(text.strip().lower())
    unit = (match[2] or ("" if needs_unit else "s")) if match else ""
    if match is None or unit not in _SECONDS:
        raise ValueError(text)
    number = float(match[1]) * _SECONDS[unit]
    return int(number) if number.is_integer() else number


def age_units() -> list[tuple[float, str]]:
    """The units of ages for scripts, largest first: the seconds of each, and its text in the
    reader's language with %d for the number."""
    units = [(float(size), _(text).replace("%(number)d", "%d")) for size, text in _UNITS]
    return [*units, (0.001, _("%d ms"))]


def age(age_seconds: float | None) -> str:
    """An age in the reader's language and in one unit: 95 → `1 min`; None → a dash."""
    return str(translate_text(lazy_age(age_seconds)))


def lazy_age(age_seconds: float | None) -> str:
    """`age` as a lazy message."""
    if age_seconds is None:
        return "–"
    if age_seconds < 10:
        return lazy_message("%(number).1f s", number=age_seconds)
    size, text = next(unit for unit in _UNITS if age_seconds >= unit[0])
    return lazy_message(text, number=age_seconds // size)
