"""Ids are ordered by time, so an age is an id."""

from datetime import datetime, timedelta

from msgplatform.core.data import ids

DAY = 86400.0
# The id of a part can be a little smaller than the id of its row if another machine made the part,
# because clocks differ. A day is far more than the difference of set clocks.
_CLOCK_SLACK = ids.TICKS_PER_SECOND * 86400 << ids.TICK_SHIFT


def horizon(now: datetime, age: float) -> int:
    """Ids below this one are at least `age` seconds old."""
    return ids.first_id_at(now - timedelta(seconds=age))


def earliest_part(id: int) -> int:
    """The smallest id that a part of the row `id` can have."""
    return max(0, id - _CLOCK_SLACK)
