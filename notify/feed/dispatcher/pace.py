"""How fast dispatchers work, and how that follows the load.

Additive increase, multiplicative decrease: a busy server is left alone within seconds, and its
spare capacity is found step by step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Pace:
    """At most `events` in a batch, and the `share` of what a dispatcher does at full speed, 0 to 1;
    it is 0 for one that rests while others work."""

    events: int = MAX_EVENTS
    share: float = 1.0


class Effort:
    """How long work takes at full speed, learned from full batches.

    Pauses follow from that, not from how long a batch took: on a busy machine a batch takes several
    times as long, and so would the pause, until next to nothing is done. When less than the share
    is done even without a pause, batches become larger: a small one mostly waits for its turn.
    """

    def __init__(self) -> None:
        self._cost = 0.0  # seconds for a unit of work; 0: not known yet
        self._stretch = 1.0

    def events(self, pace: Pace) -> int:
        """How many to take into a batch."""
        return min(MAX_EVENTS, round(pace.events * self._stretch))

    def learn(self, work: int, took: float) -> None:
        cost = took / work
        # Slowly upwards: when others come, work slows down a moment before the share falls, and
        # that must not be learned.
        rate = _LEARNING_LESS if cost < self._cost else _LEARNING_MORE
        self._cost += (cost - self._cost) * rate if self._cost else cost

    def pause(self, share: float, work: int, took: float) -> float:
        """Seconds to rest after work that took so long. As long as the cost is not known, they
        follow from the time it took."""
        due = (min(took, work * self._cost) or took) / share
        change = _STRETCHING if took >= due and share < FULL_SPEED else 1 / _STRETCHING
        self._stretch = min(MAX_EVENTS / MIN_EVENTS, max(1.0, self._stretch * change))
        return max(0.0, due - took)


def pace_of(share: float) -> Pace:
    """Batches become smaller with the share, because others wait for long statements."""
    return Pace(max(MIN_EVENTS, round(MAX_EVENTS * share)), share)


def divided(share: float, dispatchers: Sequence[str], turn: int) -> tuple[tuple[str, ...], float]:
    """Which dispatchers work while all of them do `share` of what they could, and each one's share.

    As few as possible: two that work at the same moment are in the way of others far more than one
    that works twice as often. They take turns, so that nothing waits long for one that is frozen.
    """
    count = max(1, math.ceil(round(share * len(dispatchers), 6)))
    first = turn * count % max(1, len(dispatchers))
    at_work = tuple(islice(cycle(sorted(dispatchers)), first, first + count))
    return at_work, min(1.0, share * len(dispatchers) / count)


def next_share(
    share: float, load: float, least: float, most: float, is_alone: bool = False
) -> float:
    """The share one step later; `load` is 1 when the server has as much to do as it should have.

    Where the two conflict `most` wins over `least`: somebody decided it for these hours.
    """
    if load > 1:
        share *= DECREASE
    elif load < COMFORTABLE:
        share += INCREASE_ALONE if is_alone else INCREASE
    return round(min(most, max(least, share)), 4)
