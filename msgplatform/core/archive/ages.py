"""Ids are ordered by time, so an age is an id."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgplatform.core.data import ids

DAY = 86400.0
# The id of a row that belongs to another can be a little smaller than that one's: another machine's
# clock made it.
_CLOCK_SLACK = ids.TICKS_PER_SECOND * 86400 << ids.TICK_SHIFT


def horizon(now: datetime, age: float) -> int:
    """Ids below this one are at least `age` seconds old."""
    return ids.first_id_at(now - timedelta(seconds=age))


def earliest_part(id: int) -> int:
    """No id of a row that belongs to the one with this id is smaller."""
    return max(0, id - _CLOCK_SLACK)
