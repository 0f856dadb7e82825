"""Durations as people write them: `5 s`, `30 min`, `2 h`, `1 d`."""

from __future__ import annotations

import re

_SECONDS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*([a-z]*)")
# What `seconds` takes with a unit, for the schema of an API.
PATTERN = r"^[0-9]{1,12}(\.[0-9]{1,12})? ?(s|sec|m|min|h|d)$"


def seconds(text: str, needs_unit: bool = False) -> int | float:
    """Without a unit it is seconds, if it `needs_unit` an error. Raises ValueError."""
    found = _DURATION.fullmatch(text.strip().lower())
    unit = (found[2] or ("" if needs_unit else "s")) if found else ""
    if found is None or unit not in _SECONDS:
        raise ValueError(text)
    number = float(found[1]) * _SECONDS[unit]
    return int(number) if number.is_integer() else number
