"""The safe horizon: the time below which no further row can appear at a source.

`UpdateTime` is set when a statement begins, and its row appears when the transaction commits, so
rows do not appear in the order of their times. A program that reads up to the newest row misses
rows that are committed later with an earlier time.

**SQLite** has one writer at a time. While this program holds the write lock there is no other
writer, and the present time is the horizon. While another writer holds it, its rows are not older
than the newest committed row, which is the horizon then.

**MySQL and MariaDB.** A row that is yet to appear is written by a statement that runs now, in a
transaction that is open now, or by one that begins later. So nothing can appear below the smallest
of: the present time, the beginning of the oldest statement that runs, the beginning of the oldest
transaction that has written. They are read in this order, before the rows:

1. the server's time, and the statements (`PROCESSLIST`): one may have its time already and wait
   for a lock of the table, before its transaction begins;
2. a transaction of our own begins;
3. the transactions (`INNODB_TRX`). The server answers with a copy that it renews only when it was
   not read for 0.1 s; a copy in which our own transaction is listed was made after step 2, so it is
   new enough. Readers have the number 0 and are left out.

A horizon stays true, so pages that follow each other closely, and the sources of one server, share
it within a process, which asks five times a second at most: each would keep the copy old for the
others.

`trx_started` is in the zone of the server's operating system and in whole seconds. The privilege
PROCESS is needed, and tried again each minute; without it the horizon is the present time minus
`lag`, which is a promise of the source's owner and no proof. So it is on a replica and in a
cluster: a transaction is open on another server, and its rows come here later. A replica shows by
its threads, whatever `read_only` says, and is taken for one until the source is opened anew: its
threads may be stopped for a while.
"""

import os
import random
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Literal

import msgspec
from django.db import OperationalError
from django.utils.translation import gettext

from crmsync.poller.reading.database import NEEDS_PROCESS, Database
from crmsync.poller.reading.source import (
    Source,
    SourceRefused,
    SourceUnavailable,
    earliest_wall_clock,
)
from msgplatform.core import logging
from msgplatform.core.data.engines.contract import Activity

log = logging.get(__name__)

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


class FileHorizon:
    """The horizon of a source in SQLite. `read` raises SourceUnavailable."""

    bounded_by: Bound = ""

    def __init__(self, source: Source, database: Database, zone: tzinfo) -> None:
        self._lag = source.lag
        self._database = database
        self.zone = zone
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
        horizon = datetime.fromisoformat(until).replace(tzinfo=self.zone).astimezone(UTC)
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
        """A moment as the column would have it."""
        wall = earliest_wall_clock(moment, self.zone)
        return f"{wall:%Y-%m-%d %H:%M:%S}.{wall.microsecond // 1000:03d}"


def utc(text: str) -> datetime:
    """The moment that a database has written in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# Margin below the three bounds, two of which are in whole seconds.
MARGIN = timedelta(seconds=2)
_SHARED_SECONDS = 0.2
# INNODB_TRX is renewed after 0.1 s without a read. Pauses are random, because others ask too.
_RENEWAL_SECONDS = (_SHARED_SECONDS, 0.36)
_RENEWALS = 20
_SECOND = timedelta(seconds=1)


class _Moments(msgspec.Struct, frozen=True):
    """Times of a server in UTC, except `asked_at`."""

    asked_at: float
    now: datetime
    horizon: datetime


class _Server(msgspec.Struct):
    """The last reading of a server, for all its sources: one source asks, the others wait."""

    lock: threading.Lock = msgspec.field(default_factory=threading.Lock)
    moments: _Moments | None = None  # None: only bounded, or the server did not answer
    failure: str = ""
    ended_at: float = float("-inf")

    def moments_by(self, ask: Callable[[], _Moments | None]) -> _Moments | None:
        """The last reading if it is fresh, else what `ask` reads now. Raises SourceUnavailable,
        also if another source asked in vain meanwhile: all wait only once for a server that
        hangs."""
        began = time.monotonic()
        with self.lock:
            if self.moments and time.monotonic() - self.ended_at < _SHARED_SECONDS:
                return self.moments
            if self.failure and self.ended_at > began:
                raise SourceUnavailable(self.failure)
            self.moments, self.failure = None, ""
            try:
                self.moments = ask()
            except SourceUnavailable as error:
                self.failure = str(error)
                raise
            finally:
                self.ended_at = time.monotonic()
            return self.moments


_servers: dict[str, _Server] = {}


class ServerHorizon:
    """The horizon of a source on a server. `read` raises SourceUnavailable, SourceRefused."""

    def __init__(
        self, source: Source, database: Database, zone: tzinfo, activity: Activity
    ) -> None:
        self._lag = source.lag
        self._database = database
        self.zone = zone
        self.bounded_by: Bound = ""
        self._logged_reason: Bound = ""
        self._activity = activity
        if activity.is_in_cluster(database.rows):
            self._bound("cluster")
        identity = self._activity.identity(database.rows)
        self._server = _servers.setdefault(identity, _Server())

    def read(self) -> Reading:
        moments = None if self.bounded_by else self._server.moments_by(self._ask)
        if moments is not None:
            until = self.column_text(moments.horizon)
            return Reading(moments.now, moments.horizon, until, until, moments.asked_at)
        asked_at = time.monotonic()
        now = utc(self._activity.now(self._database.rows))
        horizon = now - self._lag
        early = self.column_text(now - min(MARGIN, self._lag))
        return Reading(now, horizon, self.column_text(horizon), early, asked_at, self.bounded_by)

    def _ask(self) -> _Moments | None:
        """None if the horizon is only bounded, for the reason that `bounded_by` now has."""
        asked_at = time.monotonic()
        text, longest_seconds, is_replica = self._activity.statements(self._database.rows)
        now = utc(text)
        server_second = (now - self._activity.clock_lag).replace(microsecond=0)
        if is_replica:
            self._bound("replica")
            return None
        try:
            oldest = self._oldest_transaction(server_second)
        except SourceRefused as refused:
            if refused.code != NEEDS_PROCESS:
                raise
            self._bound("privilege")
            return None
        bounds = [server_second]  # an accepted copy of INNODB_TRX may be this old
        if longest_seconds is not None:
            bounds.append(now - timedelta(seconds=longest_seconds) - _SECOND)
        if oldest is not None:
            bounds.append(oldest)
        return _Moments(asked_at, now, min(bounds) - MARGIN)

    def _bound(self, reason: Bound) -> None:
        if reason != self._logged_reason:
            log.warning("source_horizon_is_bounded", reason=reason)
        self.bounded_by = self._logged_reason = reason

    def _oldest_transaction(self, since: datetime) -> datetime | None:
        """The beginning of the oldest open transaction that has written; None without one. The
        server made the list at `since` (whole seconds) or later."""
        self._database.rows("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        try:
            for _ in range(_RENEWALS):
                is_new, oldest = self._activity.oldest_transaction(self._database.rows, since)
                if is_new:
                    return None if oldest is None else utc(oldest)
                time.sleep(random.uniform(*_RENEWAL_SECONDS))  # noqa: S311
        finally:
            # An error may have closed the connection, and so the transaction.
            if self._database.connection.connection is not None:
                self._database.rows("COMMIT")
        raise SourceUnavailable(gettext(
            "other programs ask the source's server for its open transactions (INNODB_TRX) so "
            "often that it does not renew the list: let them ask less often than every 0.1 s"
        ))  # fmt: skip

    def column_text(self, moment: datetime) -> str:
        """A moment as the column would have it."""
        return f"{earliest_wall_clock(moment, self.zone):%Y-%m-%d %H:%M:%S.%f}"
