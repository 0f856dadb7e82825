"""The safe horizon: the time below which no further row can appear at a source.

`UpdateTime` is set when a statement begins, and its row appears when the transaction commits, so
rows do not appear in the order of their times. A program that reads up to the newest row misses
rows that are committed later with an earlier time. `server_horizon.py` has the horizon of servers.

**SQLite** has one writer at a time. While this program holds the write lock there is no other
writer, and the present time is the horizon. While another writer holds it, its rows are not older
than the newest committed row, which is the horizon then.
"""

import os
import time
from datetime import UTC, datetime, tzinfo
from typing import Literal, Protocol

import msgspec
from django.db import OperationalError

from crmsync.poller.reading.database import Database
from crmsync.poller.reading.source import Source, SourceUnavailable, earliest_wall_clock

Bound = Literal["", "privilege", "replica", "cluster", "file"]


class Reading(msgspec.Struct, frozen=True):
    """The horizon as it was at one moment; times with zone are in UTC.

    `safe_until`: the horizon. `until`: the time below which rows are read. Both are texts as the
    column has them. `until` is later where the horizon is only assumed: rows between both are read
    early. `bounded_by`: '' for an exact horizon, else the reason why only the source's `lag` bounds
    it. `asked_at`: this process's monotonic clock before the server was asked.
    """

    now: datetime
    horizon: datetime
    safe_until: str
    until: str
    asked_at: float
    bounded_by: Bound = ""

    @property
    def exact(self) -> bool:
        return not self.bounded_by


class Horizon(Protocol):
    """Reads the horizon of a source."""

    def read(self) -> Reading:
        """The horizon now. Raises SourceUnavailable, SourceRefused."""

    def column_text(self, moment: datetime) -> str:
        """A moment as the column would have it."""


class FileHorizon:
    def __init__(self, source: Source, database: Database, zone: tzinfo) -> None:
        self._lag = source.lag
        self._database = database
        self._zone = zone
        self._table = database.quote(source.table)
        self._time = database.quote(source.columns.update_time)
        # SQLite grants a lock even of a file that only others can write.
        files = [str(row[2]) for row in database.rows("PRAGMA database_list") if row[1] == "main"]
        self._can_lock = not files[0] or os.access(files[0], os.W_OK)

    def read(self) -> Reading:
        asked_at = time.monotonic()
        now = self._now_under_lock() if self._can_lock else None
        if now is not None:
            until = self.column_text(now)
            return Reading(now, now, until, until, asked_at)
        now = self._now()
        newest = self._database.rows(
            f"SELECT {self._time} || '' FROM {self._table} WHERE {self._time} <= %s "  # noqa: S608
            f"ORDER BY {self._time} DESC LIMIT 1",
            [self.column_text(now)],
        )
        until = newest[0][0] if newest else self.column_text(now - self._lag)
        if not self._can_lock:  # `until` is exclusive: the newest row must lie below it
            until = max(until, self.column_text(now - self._lag))
        horizon = datetime.fromisoformat(until).replace(tzinfo=self._zone).astimezone(UTC)
        return Reading(now, horizon, until, until, asked_at, "" if self._can_lock else "file")

    def _now_under_lock(self) -> datetime | None:
        """The present time while there is no writer, None while there is one."""
        run = self._database.rows
        ((timeout,),) = run("PRAGMA busy_timeout")
        ((only_read,),) = run("PRAGMA query_only")
        run("PRAGMA busy_timeout = 0")
        # `query_only` refuses the lock too. Nothing is written under the lock.
        run("PRAGMA query_only = OFF")
        try:
            run("BEGIN IMMEDIATE")
            try:
                return self._now()
            finally:
                run("ROLLBACK")
        except SourceUnavailable as busy:
            if isinstance(busy.__cause__, OperationalError) and "locked" in str(busy.__cause__):
                return None
            raise
        finally:
            run(f"PRAGMA query_only = {int(only_read)}")
            run(f"PRAGMA busy_timeout = {int(timeout)}")

    def _now(self) -> datetime:
        ((text,),) = self._database.rows("SELECT STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW')")
        return utc(text)

    def column_text(self, moment: datetime) -> str:
        wall = earliest_wall_clock(moment, self._zone)
        return f"{wall:%Y-%m-%d %H:%M:%S}.{wall.microsecond // 1000:03d}"


def utc(text: str) -> datetime:
    """The moment that a database has written in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
