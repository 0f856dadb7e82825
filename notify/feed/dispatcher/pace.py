"""How fast dispatchers work, and how that follows the load.

Additive increase, multiplicative decrease: a busy server is left alone within seconds, and what it
has to spare is found step by step.
"""

from __future__ import annotations

from dataclasses import dataclass

MOST_EVENTS = 100  # of a batch: ten times as many are not faster, and wait ten times as long
LEAST_EVENTS = 10
# A step is one second.
INCREASE = 0.05
DECREASE = 0.5
# From here on up to a load of 1 the share stays as it is.
COMFORTABLE = 0.8


@dataclass(frozen=True, slots=True)
class Pace:
    """`events` in a batch at most; `share` of its time that a dispatcher works, 0 to 1."""

    events: int = MOST_EVENTS
    share: float = 1.0

    def pause(self, took: float) -> float:
        """Seconds to rest after a batch that took so long."""
        return took * (1 / self.share - 1)


def pace_of(share: float) -> Pace:
    """Batches become smaller with the share: a long statement is what others would wait for."""
    return Pace(max(LEAST_EVENTS, round(MOST_EVENTS * share)), share)


def next_share(share: float, load: float, least: float, most: float) -> float:
    """The share one step later; `load` is 1 when the server has as much to do as it should have.

    `least` gives way to `most`, which is somebody's decision for these hours.
    """
    if load > 1:
        share *= DECREASE
    elif load < COMFORTABLE:
        share += INCREASE
    return round(min(most, max(least, share)), 4)
