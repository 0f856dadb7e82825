"""Ids are ordered by time, so an age is an id."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgplatform.core.data import ids

DAY = 86400.0


def horizon(now: datetime, age: float) -> int:
    """Ids below this one are at least `age` seconds old."""
    return ids.first_id_at(now - timedelta(seconds=age))
