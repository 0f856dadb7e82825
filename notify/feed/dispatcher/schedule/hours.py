"""The most that dispatchers take at some hours of the day."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

_RULE = re.compile(r"(\d{1,2})-(\d{1,2}):(\d*\.?\d+)")


@dataclass(frozen=True, slots=True)
class Hours:
    """`most` is the largest share from `first` o'clock until before `end` o'clock, which may be
    past midnight."""

    first: int
    end: int
    most: float

    def holds(self, hour: int) -> bool:
        if self.first < self.end:
            return self.first <= hour < self.end
        return hour >= self.first or hour < self.end


def parse(text: str) -> tuple[Hours, ...]:
    """Rules such as "19-23:0.3,0-6:1". Raises ValueError, naming the rule."""
    rules = []
    for rule in filter(None, map(str.strip, text.split(","))):
        match = _RULE.fullmatch(rule)
        if match is None:
            raise ValueError(f"{rule!r} is not like 19-23:0.3")
        first, end, most = int(match[1]), int(match[2]), float(match[3])
        if first > 23 or end > 24 or first == end:
            raise ValueError(f"{rule!r}: hours go from 0 to 24, and the two must differ")
        # Never 0: a queue that nobody works on would grow without an end.
        if not 0.01 <= most <= 1:
            raise ValueError(f"{rule!r}: the share must be between 0.01 and 1")
        rules.append(Hours(first, end, most))
    return tuple(rules)


def most_at(rules: Sequence[Hours], moment: datetime) -> float:
    """The largest share at this moment, which must be in the rules' time zone. Where rules overlap
    the smallest share counts; without a rule it is 1."""
    return min((rule.most for rule in rules if rule.holds(moment.hour)), default=1.0)
