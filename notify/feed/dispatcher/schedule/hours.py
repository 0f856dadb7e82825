"""The most that dispatchers take at some hours of the day."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

_RULE = re.compile(r"(\d{1,2})-(\d{1,2}):(\d*\.?\d+)")


@dataclass(frozen=True, slots=True)
class Hours:
    """From `first` o'clock to before `end` o'clock, also over midnight, `most` is the largest
    share."""

    first: int
    end: int
    most: float

    def holds(self, hour: int) -> bool:
        if self.first < self.end:
            return self.first <= hour < self.end
        return hour >= self.first or hour < self.end


def parse(text: str) -> tuple[Hours, ...]:
    """Rules such as "19-23:0.3,0-6:1". Raises ValueError, naming the rule."""
    return tuple(_rule(part.strip()) for part in text.split(",") if part.strip())


def most_at(rules: Sequence[Hours], moment: datetime) -> float:
    """The largest share at this moment, which is in the zone of the rules; where rules overlap,
    the smallest counts, and without one it is 1."""
    return min((rule.most for rule in rules if rule.holds(moment.hour)), default=1.0)


def _rule(text: str) -> Hours:
    match = _RULE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not like 19-23:0.3")
    first, end, most = int(match[1]), int(match[2]), float(match[3])
    if first > 23 or end > 24 or first == end:
        raise ValueError(f"{text!r}: hours go from 0 to 24, and the two must differ")
    if not 0.01 <= most <= 1:
        raise ValueError(f"{text!r}: the share must be between 0.01 and 1")
    return Hours(first, end, most)
