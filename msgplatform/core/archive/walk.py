"""Find rows that are old enough to move to an archive, without reading rows that cannot move yet in
every turn.

A row is looked at when it reaches one of a list of ages (`look_ages`), and not in between. Each age
has a cursor, an id: rows with smaller ids have been looked at at this age. A row that cannot move
(it is held, or still failing) is passed over, and looked at again when it reaches the next age.

The cursors are in memory only. After a start the cursor of the smallest age begins at the oldest
row, so that every row is looked at once; the other cursors begin at the rows that reach their age
now.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet

from msgplatform.core.archive.description import DAY, horizon
from msgplatform.core.data import ids

PAGE = 500
# A row that could not move is looked at again this many seconds after the first look, then after
# twice that time, and so on: about twenty looks in a year for each of `firsts`.
_FIRST_STEP_SECONDS = 60.0
_MAX_SECONDS = 20 * 365 * DAY


def look_ages(firsts: Collection[float]) -> list[float]:
    """The ages (seconds, ascending) at which a row is looked at.

    `firsts` are the ages at which a row may become movable, such as an age for delivered messages
    and an age for failed messages. After each first age the looks become rarer and rarer.
    """
    ages = set(firsts)
    step = _FIRST_STEP_SECONDS
    while step < _MAX_SECONDS:
        ages.update(first + step for first in firsts)
        step *= 2
    return sorted(ages)


class Walk:
    """Gives pages of rows that have reached one of the `ages` (ascending).

    `candidates(first, below)` are the ids in this range that may be worth a look, ascending.
    """

    def __init__(
        self,
        now: datetime,
        ages: Sequence[float],
        candidates: Callable[[int, int], QuerySet[Any, int]],
    ) -> None:
        self._candidates = candidates
        self._smallest_age, *others = ages
        self._cursors = {age: horizon(now, age) for age in others}
        self._cursors[self._smallest_age] = 0

    def page(self, now: datetime) -> list[int] | None:
        """The next candidates, at most PAGE; None until another row reaches an age."""
        for age, cursor in sorted(self._cursors.items()):
            end_id = horizon(now, age)
            if cursor >= end_id:
                continue
            row_ids = list(self._candidates(cursor, end_id)[:PAGE])
            self._cursors[age] = row_ids[-1] + 1 if len(row_ids) == PAGE else end_id
            if row_ids:
                return row_ids
        return None

    def lag(self, now: datetime) -> float:
        """Seconds since the next row reached the smallest age; 0: up to date."""
        cursor = self._cursors[self._smallest_age]
        if not cursor:  # before the first page
            return 0.0
        due_at = ids.datetime_of(cursor) + timedelta(seconds=self._smallest_age)
        return max(0.0, (now - due_at).total_seconds())
