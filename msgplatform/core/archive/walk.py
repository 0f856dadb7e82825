"""Find rows that are old enough to move to an archive, without reading again and again those that
cannot move yet.

For each of the ages of `looks` a walker follows its horizon through the ids, so that a row is
looked at when it reaches one of these ages and never in between. Each walker passes a row that
cannot move (held, still failing) once. The cursors are in memory only: after a start the youngest
walker goes through everything once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet

from msgplatform.core.archive.ages import DAY, horizon
from msgplatform.core.data import ids

PAGE = 500
# A row that could not move is looked at again when it is this much older, then twice as much, and
# so on: a row that is held for ever is looked at some twenty times in its life.
_FIRST_STEP_SECONDS = 60.0
_LONGEST_SECONDS = 20 * 365 * DAY


def looks(firsts: Iterable[float]) -> list[float]:
    """The ages (seconds, ascending) at which a row is looked at: at each of `firsts`, when for some
    reason it may move for the first time, and then less and less often."""
    found = set()
    for first in firsts:
        found.add(first)
        step = _FIRST_STEP_SECONDS
        while step < _LONGEST_SECONDS:
            found.add(first + step)
            step *= 2
    return sorted(found)


class Walk:
    """`candidates(first, below)` are the ids in this range that may be worth a look, ascending."""

    def __init__(
        self,
        now: datetime,
        ages: Sequence[float],
        candidates: Callable[[int, int], QuerySet[Any, int]],
    ) -> None:
        self._candidates = candidates
        self._first, *others = ages
        self._cursors = {age: horizon(now, age) for age in others}
        self._cursors[self._first] = 0

    def page(self, now: datetime) -> list[int] | None:
        """Up to PAGE candidates that reached one of the ages; None when none did."""
        for age, cursor in sorted(self._cursors.items()):
            reached = horizon(now, age)
            if cursor >= reached:
                continue
            found = list(self._candidates(cursor, reached)[:PAGE])
            self._cursors[age] = found[-1] + 1 if len(found) == PAGE else reached
            if found:
                return found
        return None

    def lag(self, now: datetime) -> float:
        """Seconds by which the youngest walker is behind."""
        cursor = self._cursors[self._first]
        oldest = ids.datetime_of(cursor) if cursor else None
        if oldest is None:
            return 0.0
        return max(0.0, (now - timedelta(seconds=self._first) - oldest).total_seconds())
