"""Bounded counts of many parts of a table, whose cost does not grow with the table; and counts that
are kept for a while, so that frequent callers cost the database little."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from django.db import connection

from msgplatform.core.data import chunks

_TERMS = 400  # SELECTs in one UNION; SQLite takes 500
# A total of fewer rows is counted anew each time.
MANY = 10_000
# Counts are kept for this many times the duration of their counting: counting then takes at most a
# twentieth of this process's time, for any number of callers. Ten minutes are the maximum, because
# the process may have been frozen.
REST, _MAX_SECONDS = 20, 600.0
K = TypeVar("K")


def count_up_to(
    table: str, condition: str, keys: Sequence[Sequence[int]], max_count: int
) -> list[int]:
    """The number of rows, up to `max_count`, that meet the condition with each key, in the order of
    the keys. `condition` is SQL with a placeholder for each number of a key; an index must answer
    it."""
    count_sql = f"COUNT(*) FROM (SELECT 1 FROM {table} WHERE {condition} LIMIT {max_count}) AS some"  # noqa: S608
    counts: dict[int, int] = {}
    for page in chunks(list(enumerate(keys)), _TERMS):
        with connection.cursor() as cursor:
            cursor.execute(
                " UNION ALL ".join(f"SELECT {place}, {count_sql}" for place, _key in page),
                [number for _place, key in page for number in key],
            )
            counts.update(cursor.fetchall())
    return [counts[place] for place in range(len(keys))]


class KeptCounts(Generic[K]):
    """Counts by key, kept in this process for a while (REST) unless they are of fewer than MANY
    rows. While one thread counts, other threads get the kept counts. An error of `count` is raised,
    and the kept counts stay."""

    def __init__(self, count: Callable[[], Mapping[K, int]]) -> None:
        self.count = count
        self._known: Mapping[K, int] | None = None
        self._until = 0.0
        self._counting = threading.Lock()

    def read(self) -> Mapping[K, int]:
        """The counts as of now, or the kept counts."""
        if (counts := self._fresh()) is not None:
            return counts
        # A caller waits for the counting thread only if there are no kept counts.
        if not self._counting.acquire(blocking=self._known is None):
            return self._known or self.read()
        try:
            if (counts := self._fresh()) is None:
                start = time.monotonic()
                counts = self.count()
                now = time.monotonic()
                self._known = counts if sum(counts.values()) >= MANY else None
                self._until = now + min(_MAX_SECONDS, REST * (now - start))
            return counts
        finally:
            self._counting.release()

    def _fresh(self) -> Mapping[K, int] | None:
        return self._known if time.monotonic() < self._until else None
