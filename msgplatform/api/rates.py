"""Rates as people write them: `600/min`."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

_SECONDS = {"s": 1, "sec": 1, "min": 60, "m": 60, "h": 3600, "hour": 3600, "d": 86400, "day": 86400}
HINT = "Write it as 100/s, 600/min, 5000/hour or 20000/day, or off for no limit."


class Rate(NamedTuple):
    """At most `limit` requests in a window of `seconds`."""

    limit: int
    seconds: int


@lru_cache(maxsize=64)
def parse(text: str | None) -> Rate | None:
    """None for "no limit" (None, empty, `off`). Raises ValueError for what is no rate."""
    if not text or text.lower() == "off":
        return None
    count, slash, unit = text.partition("/")
    if not slash or not count.isdecimal() or int(count) < 1 or unit.lower() not in _SECONDS:
        raise ValueError(f"{text!r} is not a rate")
    return Rate(int(count), _SECONDS[unit.lower()])
