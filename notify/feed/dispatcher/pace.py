"""How fast dispatchers work, and how that follows the load.

Additive increase, multiplicative decrease: a busy server is left alone within seconds, and what it
has to spare is found step by step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice

MOST_EVENTS = 100  # of a batch: ten times as many are not faster, and wait ten times as long
LEAST_EVENTS = 10
# A step is one second.
INCREASE = 0.02
INCREASE_ALONE = 0.1  # while nobody else is there who could be in the way
DECREASE = 0.5
_LEARNING_LESS, _LEARNING_MORE = 0.1, 0.005
_STRETCHING = 1.25
FULL_SPEED = 0.95  # of the share
# From here on up to a load of 1 the share stays as it is.
COMFORTABLE = 0.7


@dataclass(frozen=True, slots=True)
class Pace:
    """`events` in a batch at most; `share` of what a dispatcher does at full speed, 0 to 1; 0 is
    for one that rests while others work."""

    events: int = MOST_EVENTS
    share: float = 1.0


class Effort:
    """How long work takes at full speed, learned from full batches.

    A pause is reckoned by that: on a machine that is busy a batch takes several times as long, and
    so would the pause, until next to nothing is done. When even without a pause less is done than
    the share, batches become larger: a small one mostly waits for its turn.
    """

    def __init__(self) -> None:
        self._cost = 0.0  # seconds for a unit of work; 0: not known yet
        self._stretch = 1.0

    def events(self, pace: Pace) -> int:
        """How many of a batch."""
        return min(MOST_EVENTS, round(pace.events * self._stretch))

    def learn(self, work: int, took: float) -> None:
        cost = took / work
        # Slowly upwards: others slow it down before the share falls, and that is not to be learned.
        rate = _LEARNING_LESS if cost < self._cost else _LEARNING_MORE
        self._cost += (cost - self._cost) * rate if self._cost else cost

    def pause(self, share: float, work: int, took: float) -> float:
        """Seconds to rest after work that took so long. Without a known cost, a share of the
        time."""
        due = (min(took, work * self._cost) or took) / share
        change = _STRETCHING if took >= due and share < FULL_SPEED else 1 / _STRETCHING
        self._stretch = min(MOST_EVENTS / LEAST_EVENTS, max(1.0, self._stretch * change))
        return max(0.0, due - took)


def pace_of(share: float) -> Pace:
    """Batches become smaller with the share: a long statement is what others would wait for."""
    return Pace(max(LEAST_EVENTS, round(MOST_EVENTS * share)), share)


def divided(share: float, dispatchers: Sequence[str], turn: int) -> tuple[tuple[str, ...], float]:
    """Which dispatchers work while all of them do `share` of what they could, and how much each.

    As few as possible: two that work at the same moment are in others' way far more than one that
    works twice as often. They take turns, so that nothing waits long for one that is frozen.
    """
    count = max(1, math.ceil(round(share * len(dispatchers), 6)))
    first = turn * count % max(1, len(dispatchers))
    at_work = tuple(islice(cycle(sorted(dispatchers)), first, first + count))
    return at_work, min(1.0, share * len(dispatchers) / count)


def next_share(
    share: float, load: float, least: float, most: float, is_alone: bool = False
) -> float:
    """The share one step later; `load` is 1 when the server has as much to do as it should have.

    `least` gives way to `most`, which is somebody's decision for these hours.
    """
    if load > 1:
        share *= DECREASE
    elif load < COMFORTABLE:
        share += INCREASE_ALONE if is_alone else INCREASE
    return round(min(most, max(least, share)), 4)
