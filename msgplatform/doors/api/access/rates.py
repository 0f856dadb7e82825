"""Parses rates in the form `600/min`."""

import re
from functools import lru_cache
from typing import NamedTuple

_SECONDS = {"s": 1, "sec": 1, "min": 60, "m": 60, "h": 3600, "hour": 3600, "d": 86400, "day": 86400}
_RATE = re.compile(rf"([1-9][0-9]{{0,8}})/({'|'.join(_SECONDS)})")
HINT = "Write it as 100/s, 600/min, 5000/hour or 20000/day, or off for no limit."


class Rate(NamedTuple):
    """At most `limit` requests in a window of `seconds`."""

    limit: int
    seconds: int


@lru_cache(maxsize=64)
def parse(text: str | None) -> Rate | None:
    """None for "no limit" (None, empty, `off`). Raises ValueError if it is not a rate."""
    if not text or text.lower() == "off":
        return None
    match = _RATE.fullmatch(text.lower())
    if match is None:
        raise ValueError(f"{text!r} is not a rate")
    return Rate(int(match[1]), _SECONDS[match[2]])
