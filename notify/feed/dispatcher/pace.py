"""The pace of dispatchers, which follows the load.

Additive increase, multiplicative decrease: a busy server is left alone within seconds, and its
spare capacity is found step by step.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import cycle, islice

MAX_EVENTS = 100  # in a batch: ten times as many are not faster, and wait ten times as long
MIN_EVENTS = 10
# How the share changes with each step of a second.
INCREASE = 0.02
INCREASE_ALONE = 0.1  # while nobody else uses the server
DECREASE = 0.5
_LEARNING_LESS, _LEARNING_MORE = 0.1, 0.005  # how much of a difference each batch teaches
_STRETCHING = 1.25  # by how much batches grow or shrink from one turn to the next
FULL_SPEED = 0.95  # a share from here on counts as full speed
# Between this load and 1 the share stays as it is.
COMFORTABLE = 0.7
_HOURS = re.compile(r"(\d{1,2})-(\d{1,2}):(\d*\.?\d+)")


@dataclass(frozen=True, slots=True)
class Pace:
    """At most `events` in a batch, and the `share` of what a dispatcher does at full speed, 0 to 1;
    it is 0 for one that rests while others work."""

    events: int = MAX_EVENTS
    share: float = 1.0


class Effort:
    """The seconds that work takes at full speed, learned from full batches.

    Pauses follow from that, not from how long a batch took: on a busy machine a batch takes several
    times as long, and so would the pause, until next to nothing is done. When less than the share
    is done even without a pause, batches become larger: a small one mostly waits for its turn.
    """

    def __init__(self) -> None:
        self._cost = 0.0  # seconds for a unit of work; 0: not known yet
        self._stretch = 1.0

    def events(self, pace: Pace) -> int:
        """The size of a batch."""
        return min(MAX_EVENTS, round(pace.events * self._stretch))

    def learn(self, work: int, seconds: float) -> None:
        cost = seconds / work
        # Slowly upwards: when others come, work slows down a moment before the share falls, and
        # that must not be learned.
        rate = _LEARNING_LESS if cost < self._cost else _LEARNING_MORE
        self._cost += (cost - self._cost) * rate if self._cost else cost

    def pause(self, share: float, work: int, seconds: float) -> float:
        """Seconds to rest after work that took `seconds`, on which they depend as long as the cost
        is not known."""
        planned_seconds = (min(seconds, work * self._cost) or seconds) / share
        change = (
            _STRETCHING if seconds >= planned_seconds and share < FULL_SPEED else 1 / _STRETCHING
        )
        self._stretch = min(MAX_EVENTS / MIN_EVENTS, max(1.0, self._stretch * change))
        return max(0.0, planned_seconds - seconds)


def pace_of(share: float) -> Pace:
    """Batches become smaller with the share, because others wait for long statements."""
    return Pace(max(MIN_EVENTS, round(MAX_EVENTS * share)), share)


def divide(share: float, dispatchers: Sequence[str], turn: int) -> tuple[tuple[str, ...], float]:
    """Choose the dispatchers at work while all together do `share` of what they could; each one's
    share.

    As few as possible: two that work at the same moment are in the way of others far more than one
    that works twice as often. They take turns, so that nothing waits long for one that is frozen.
    """
    count = max(1, math.ceil(round(share * len(dispatchers), 6)))
    first = turn * count % max(1, len(dispatchers))
    at_work = tuple(islice(cycle(sorted(dispatchers)), first, first + count))
    return at_work, min(1.0, share * len(dispatchers) / count)


def next_share(
    share: float, load: float, min_share: float, max_share: float, is_alone: bool = False
) -> float:
    """The share one step later; `load` is 1 when the server has as much to do as it should have.

    Where the two conflict `max_share` wins over `min_share`: a person decided it for these hours.
    """
    if load > 1:
        share *= DECREASE
    elif load < COMFORTABLE:
        share += INCREASE_ALONE if is_alone else INCREASE
    return round(min(max_share, max(min_share, share)), 4)


# -- the largest share at some hours of the day ----------------------------------------------------
@dataclass(frozen=True, slots=True)
class HoursRule:
    """`max_share` holds from `first` o'clock until before `end` o'clock, which may be past
    midnight."""

    first: int
    end: int
    max_share: float

    def holds(self, hour: int) -> bool:
        """True if the rule is about this hour, 0 to 23."""
        if self.first < self.end:
            return self.first <= hour < self.end
        return hour >= self.first or hour < self.end


def parse_hours(text: str) -> tuple[HoursRule, ...]:
    """Rules such as "19-23:0.3,0-6:1". Raises ValueError, naming the rule."""
    rules = []
    for rule in filter(None, map(str.strip, text.split(","))):
        match = _HOURS.fullmatch(rule)
        if match is None:
            raise ValueError(f"{rule!r} is not like 19-23:0.3")
        first, end, max_share = int(match[1]), int(match[2]), float(match[3])
        if first > 23 or end > 24 or first == end:
            raise ValueError(f"{rule!r}: hours go from 0 to 24, and the two must differ")
        # Never 0: a queue that nobody works on would grow without an end.
        if not 0.01 <= max_share <= 1:
            raise ValueError(f"{rule!r}: the share must be between 0.01 and 1")
        rules.append(HoursRule(first, end, max_share))
    return tuple(rules)


def max_share_at(rules: Sequence[HoursRule], moment: datetime) -> float:
    """The largest share at this moment, which must be in the rules' time zone. Where rules overlap
    the smallest share counts; without a rule it is 1."""
    return min((rule.max_share for rule in rules if rule.holds(moment.hour)), default=1.0)
