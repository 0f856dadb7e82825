"""Counts of many parts of a table, each up to a bound: the cost does not grow with the table. And
counts that are kept for a while, so that whoever asks often costs the database little."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from django.db import connection

from msgplatform.core.data.chunks import chunks

_TERMS = 400  # of one UNION; SQLite takes 500
# Counts of fewer rows together are read anew each time.
MANY = 10_000
# Counting takes at most a twentieth of the time of this process, however often somebody asks.
REST = 20
K = TypeVar("K")


def capped(table: str, condition: str, keys: Sequence[Sequence[int]], most: int) -> list[int]:
    """How many rows meet the condition with each of the keys, in their order, each counted up to
    `most`. `condition` is SQL with a place for each number of a key; an index must answer it."""
    one = f"COUNT(*) FROM (SELECT 1 FROM {table} WHERE {condition} LIMIT {most}) AS some"  # noqa: S608
    found: dict[int, int] = {}
    for some in chunks(list(enumerate(keys)), _TERMS):
        with connection.cursor() as cursor:
            cursor.execute(
                " UNION ALL ".join(f"SELECT {place}, {one}" for place, _key in some),
                [number for _place, key in some for number in key],
            )
            found.update(cursor.fetchall())
    return [found[place] for place in range(len(keys))]


class KeptCounts(Generic[K]):
    """Counts by some key, kept in this process for REST times as long as counting them took.

    Only counts of MANY rows or more are kept. While one thread counts, others get what is known.
    Whatever `count` raises is raised, and what was known is kept.
    """

    def __init__(self, count: Callable[[], Mapping[K, int]]) -> None:
        self._count = count
        self._known: Mapping[K, int] | None = None
        self._until = 0.0
        self._counting = threading.Lock()

    def read(self) -> Mapping[K, int]:
        """The counts, of now or of a short time ago."""
        if (known := self._fresh()) is not None:
            return known
        # Without anything known there is nothing to do but wait for the thread that counts.
        if not self._counting.acquire(blocking=self._known is None):
            return self._known or self.read()
        try:
            return self._fresh() or self._anew()
        finally:
            self._counting.release()

    def _fresh(self) -> Mapping[K, int] | None:
        return self._known if time.monotonic() < self._until else None

    def _anew(self) -> Mapping[K, int]:
        begun = time.monotonic()
        found = self._count()
        now = time.monotonic()
        is_large = sum(found.values()) >= MANY
        self._known, self._until = (found, now + REST * (now - begun)) if is_large else (None, 0.0)
        return found
