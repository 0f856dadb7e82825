"""The safe horizon: the time below which no further row can appear at a source.

`UpdateTime` is set when a statement begins, and its row appears when the transaction commits, so
rows do not appear in the order of their times. A program that reads up to the newest row misses
rows that are committed later with an earlier time.

**MySQL, MariaDB.** A row that is yet to appear is written by a statement that runs now, in a
transaction that is open now, or by one that begins later. So nothing can appear below the smallest
of: the present time, the beginning of the oldest statement that runs, the beginning of the oldest
transaction that has written. They are read in this order, before the rows:

1. the server's time, and the statements (`PROCESSLIST`): one may have its time already and wait
   for a lock of the table, before its transaction begins;
2. a transaction of our own begins;
3. the transactions (`INNODB_TRX`). The server answers with a copy that it renews only when it was
   not read for 0.1 s; a copy in which our own transaction is listed was made after step 2, so it is
   new enough. Readers have the number 0 and are left out.

`trx_started` is in the zone of the server's operating system and in whole seconds. The privilege
PROCESS is needed; without it the horizon is the present time minus `lag`, which is a promise of
the source's owner and no proof. So it is on a replica and in a cluster: a transaction is open on
another server, and its rows come here later. A replica shows by its threads, whatever `read_only`
says, and is taken for one until the program looks at the table anew: its threads may be stopped
for a while.

**SQLite** has one writer at a time. While this program holds the write lock there is no other
writer, and the present time is the horizon. While another writer holds it, its rows are not older
than the newest committed row, which is the horizon then.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Literal, Protocol

from django.db import OperationalError

from crmsync.poller.reading.database import NEEDS_PROCESS, Database
from crmsync.poller.reading.source import (
    Source,
    SourceRefused,
    SourceUnavailable,
    earliest_wall_clock,
)
from msgplatform.core import logging

log = logging.get(__name__)

# Subtracted from the three bounds, two of which are in whole seconds.
MARGIN = timedelta(seconds=2)
_RENEWAL_SECONDS = 0.12  # INNODB_TRX is renewed when it was not read for 0.1 s
_RENEWALS = 20
_SECOND = timedelta(seconds=1)
# `trx_started` comes from a clock that moves on with the kernel's ticks: it can lag behind.
_TICK = timedelta(milliseconds=100)

_READERS = (
    "^[[:space:](]*(select|show|set|use|explain|describe|analyze|optimize|check|kill)[[:space:]]"
)
# Everything else may write: stored events (`Connect`), bulk statements, commands of later servers.
_NO_STATEMENTS = "'Sleep', 'Daemon', 'Binlog Dump', 'Binlog Dump GTID'"
# The time of a replication thread is its lag. A user who logs in has no statement yet.
_NO_WRITERS = "'system user', 'unauthenticated user'"
_STATEMENTS = f"""
SELECT
    CAST(UTC_TIMESTAMP(6) AS CHAR),
    MAX(IF(
        USER NOT IN ({_NO_WRITERS}) AND COALESCE(INFO, '') NOT REGEXP '{_READERS}',
        GREATEST(TIME, 0), NULL
    )),
    COALESCE(MAX(USER = 'system user'), 0),
    CAST(@@GLOBAL.read_only AS CHAR)
FROM information_schema.PROCESSLIST
WHERE ID <> CONNECTION_ID() AND COMMAND NOT IN ({_NO_STATEMENTS})
"""  # noqa: S608 - constants
# In the hour that a wall clock shows twice, the earlier moment is taken.
_TRANSACTIONS = """
SELECT
    COALESCE(MAX(own AND started >= CONVERT_TZ(%s, '+00:00', 'SYSTEM')), 0),
    CAST(MIN(IF(own OR number = 0, NULL, IF(
        CONVERT_TZ(moment - INTERVAL 1 HOUR, '+00:00', 'SYSTEM') = started,
        moment - INTERVAL 1 HOUR, moment
    ))) AS CHAR)
FROM (
    SELECT
        trx_mysql_thread_id = CONNECTION_ID() AS own,
        trx_started AS started,
        CONVERT_TZ(trx_started, 'SYSTEM', '+00:00') AS moment,
        IF(trx_id < 281474976710656, trx_id, 0) AS number
    FROM information_schema.INNODB_TRX
) AS transactions
"""  # MySQL numbers its readers from 2^48 on


Bound = Literal["", "privilege", "replica", "cluster", "file"]


@dataclass(frozen=True, slots=True)
class Reading:
    """The horizon as it was at one moment; times with zone are in UTC.

    `safe_until` is the horizon and `until` the end of what is read, both as the column would have
    them. They differ where the horizon is only assumed: then rows between them are read early.
    `bounded_by`: '' where nothing can appear below the horizon; else why it is only bounded by the
    source's `lag`.
    """

    now: datetime
    horizon: datetime
    safe_until: str
    until: str
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


def horizon_of(source: Source, database: Database, zone: tzinfo) -> Horizon:
    """The horizon of a source whose column is written in `zone`."""
    if not database.is_mysql:
        return SqliteHorizon(source, database, zone)
    return MysqlHorizon(source, database, zone)


class MysqlHorizon:
    def __init__(self, source: Source, database: Database, zone: tzinfo) -> None:
        self._lag = source.lag
        self._database = database
        self._zone = zone
        self._bounded_by: Bound = ""
        if self._is_in_cluster():
            self._bound("cluster")

    def read(self) -> Reading:
        ((text, longest_statement, is_replicating, read_only),) = self._database.rows(_STATEMENTS)
        now = _utc(text)
        server_second = (now - _TICK).replace(microsecond=0)
        # Later servers have more values than ON.
        if not self._bounded_by and (is_replicating or read_only not in ("0", "OFF")):
            self._bound("replica")
        if not self._bounded_by:
            try:
                oldest = self._oldest_transaction(server_second)
            except SourceRefused as refused:
                if refused.code != NEEDS_PROCESS:
                    raise
                self._bound("privilege")
        if self._bounded_by:
            horizon_by_lag = now - self._lag
            early = self.column_text(now - min(MARGIN, self._lag))
            return Reading(
                now, horizon_by_lag, self.column_text(horizon_by_lag), early, self._bounded_by
            )
        bounds = [server_second]  # the oldest copy of INNODB_TRX that is accepted is as old
        if longest_statement is not None:
            bounds.append(now - timedelta(seconds=int(longest_statement)) - _SECOND)
        if oldest is not None:
            bounds.append(oldest)
        horizon = min(bounds) - MARGIN
        until = self.column_text(horizon)
        return Reading(now, horizon, until, until)

    def _bound(self, reason: Bound) -> None:
        log.warning("source_horizon_is_bounded", reason=reason)
        self._bounded_by = reason

    def _oldest_transaction(self, since: datetime) -> datetime | None:
        """When the oldest open transaction began that has written; None when there is none. By a
        list that the server made at `since` (whole seconds) or later."""
        since_text = str(since.replace(tzinfo=None))
        self._database.rows("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        try:
            for _ in range(_RENEWALS):
                ((is_new, oldest),) = self._database.rows(_TRANSACTIONS, [since_text])
                if is_new:
                    return None if oldest is None else _utc(oldest)
                time.sleep(_RENEWAL_SECONDS)
        finally:
            # An error may have closed the connection, and with it the transaction.
            if self._database.connection.connection is not None:
                self._database.rows("COMMIT")
        raise SourceUnavailable(
            "the source's list of open transactions (INNODB_TRX) is asked for so often that the "
            "server does not renew it: ask less often than every 0.1 s"
        )

    def column_text(self, moment: datetime) -> str:
        return f"{earliest_wall_clock(moment, self._zone):%Y-%m-%d %H:%M:%S.%f}"

    def _is_in_cluster(self) -> bool:
        """True if other servers take writes too: Galera, or group replication of MySQL."""
        rows = self._database.rows(
            "SHOW GLOBAL VARIABLES "
            "WHERE Variable_name IN ('wsrep_on', 'group_replication_group_name')"
        )
        return any(value not in ("OFF", "") for _name, value in rows)


class SqliteHorizon:
    def __init__(self, source: Source, database: Database, zone: tzinfo) -> None:
        self._lag = source.lag
        self._database = database
        self._zone = zone
        self._table = database.quote(source.table)
        self._time = database.quote(source.columns.update_time)
        # SQLite grants a lock of a file that this user cannot write; others can still write it.
        files = [str(row[2]) for row in database.rows("PRAGMA database_list") if row[1] == "main"]
        self._can_lock = not files[0] or os.access(files[0], os.W_OK)

    def read(self) -> Reading:
        now = self._now_under_lock() if self._can_lock else None
        if now is not None:
            until = self.column_text(now)
            return Reading(now, now, until, until)
        now = self._now()
        newest = self._database.rows(
            f"SELECT {self._time} || '' FROM {self._table} WHERE {self._time} <= %s "  # noqa: S608
            f"ORDER BY {self._time} DESC LIMIT 1",
            [self.column_text(now)],
        )
        until = newest[0][0] if newest else self.column_text(now - self._lag)
        if not self._can_lock:  # the newest row is not below itself: it would never be read
            until = max(until, self.column_text(now - self._lag))
        horizon = datetime.fromisoformat(until).replace(tzinfo=self._zone).astimezone(UTC)
        return Reading(now, horizon, until, until, "" if self._can_lock else "file")

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
        return _utc(text)

    def column_text(self, moment: datetime) -> str:
        wall = earliest_wall_clock(moment, self._zone)
        return f"{wall:%Y-%m-%d %H:%M:%S}.{wall.microsecond // 1000:03d}"


def _utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
