"""Rows at even distances over some days, as expressions of SQL."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgplatform.core.data import ids


class Spread:
    """The moments of `rows` rows in the `days` before `now`. A row is named by its number, an
    expression of SQL from 1 to `rows`."""

    def __init__(self, rows: int, days: float, now: datetime) -> None:
        self._microseconds = int(timedelta(days=days) / timedelta(microseconds=1)) // rows
        self._begin = now - rows * timedelta(microseconds=self._microseconds)
        self._step = self._microseconds * ids.TICKS_PER_SECOND // 1_000_000 << ids.TICK_SHIFT

    def id(self, number: str = "n.seq") -> str:
        """An id that was made at the row's time; rows have different ones."""
        return f"({ids.first_id_at(self._begin)} + {number} * {self._step})"

    def at(self, number: str = "n.seq", seconds: float = 0) -> str:
        """The row's time, or so many seconds later."""
        begin = self._begin + timedelta(seconds=seconds)
        text = f"{begin:%Y-%m-%d %H:%M:%S.%f}"
        return f"TIMESTAMPADD(MICROSECOND, {number} * {self._microseconds}, '{text}')"


def mostly_first(values: Sequence[int], number: str = "n.seq") -> str:
    """The first of the values for half of the rows, and each of all for as many of the others. The
    same place of two lists goes to the same row."""
    listed = ", ".join(map(str, values))
    place = f"IF(CRC32(CONCAT('place', {number})) & 1, 0, {number} MOD {len(values)})"
    return f"CAST(ELT(1 + {place}, {listed}) AS SIGNED)"
