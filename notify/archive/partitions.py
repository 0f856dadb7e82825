"""Monthly partitions of the archive on MariaDB: made ahead of need, dropped whole.

An id begins with its time, so a month is a range of ids. Everything after the last month falls
into `pmax`, which is split when a new month is made; it is empty then unless nobody made any for
months, and even so nothing is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from django.db import connections
from django.db.models import Min
from django.db.utils import OperationalError

from msgplatform.core import logging
from msgplatform.core.data import ids, sql
from msgplatform.core.errors import Unavailable
from notify.archive.router import cold_alias
from notify.models import BizMsg, ColdAttempt, ColdBizMsg, ColdReceiveMsg

log = logging.get(__name__)

TABLES = tuple(model._meta.db_table for model in (ColdBizMsg, ColdReceiveMsg, ColdAttempt))
LAST = "pmax"
_MONTHS_AHEAD = 2
_LOCK = "notify-archive-partitions"
_LOCK_WAIT_SECONDS = 5  # a long read on the table: try again later, do not queue everybody behind


def prepare(now: datetime) -> None:
    """See to it that this month and the next ones have a partition.

    Raises Unavailable when nobody made the archive's tables.
    """
    using = cold_alias()
    with connections[using].cursor() as cursor:
        tables = connections[using].introspection.table_names(cursor)
    if missing := sorted(set(TABLES) - set(tables)):
        raise Unavailable(
            f"the archive has no table {missing[0]}; run: manage.py migrate --database {using}"
        )
    if connections[using].vendor != "mysql":
        return
    with _alone(using) as mine:
        for table in TABLES if mine else ():
            bounds = bounds_of(table, using)
            if LAST in bounds:
                _add(table, _missing(bounds, now), using)


def drop(before: int) -> list[str]:
    """Drop the partitions that hold only ids below `before`; their names, as table.partition."""
    using = cold_alias()
    dropped: list[str] = []
    with _alone(using) as mine:
        for table in TABLES if mine else ():
            old = [name for name, bound in bounds_of(table, using).items() if bound <= before]
            if old and _execute(f"ALTER TABLE {table} DROP PARTITION {', '.join(old)}", using):
                dropped += [f"{table}.{name}" for name in old]
    return dropped


def bounds_of(table: str, using: str) -> dict[str, float]:
    """Partition → the first id that is not in it; empty when the table has no partitions."""
    with connections[using].cursor() as cursor:
        cursor.execute(
            "SELECT partition_name, partition_description FROM information_schema.partitions"
            " WHERE table_schema = DATABASE() AND table_name = %s AND partition_name IS NOT NULL",
            [table],
        )
        return {
            name: float("inf") if bound == "MAXVALUE" else int(bound)
            for name, bound in cursor.fetchall()
        }


def _missing(bounds: dict[str, float], now: datetime) -> list[tuple[str, int]]:
    """(name, bound) of the months that have no partition yet, ascending."""
    have = max((bound for bound in bounds.values() if bound != float("inf")), default=0)
    oldest = BizMsg.objects.aggregate(oldest=Min("id"))["oldest"]
    start = ids.datetime_of(int(have)) if have else ids.datetime_of(oldest) if oldest else now
    month, last = _month(min(start, now)), _month(now)
    for _ in range(_MONTHS_AHEAD):
        last = _next(last)
    wanted = []
    while month <= last:
        bound = ids.first_id_at(_next(month))
        if bound > have:
            wanted.append((f"p{month:%Y%m}", bound))
        month = _next(month)
    return wanted


def _add(table: str, months: list[tuple[str, int]], using: str) -> None:
    if not months:
        return
    parts = [f"PARTITION {name} VALUES LESS THAN ({bound})" for name, bound in months]
    listed = ", ".join([*parts, _last()])
    _execute(f"ALTER TABLE {table} REORGANIZE PARTITION {LAST} INTO ({listed})", using)


def _last() -> str:
    return f"PARTITION {LAST} VALUES LESS THAN MAXVALUE"


def _month(moment: datetime) -> datetime:
    return datetime(moment.year, moment.month, 1, tzinfo=UTC)


def _next(month: datetime) -> datetime:
    return datetime(month.year + month.month // 12, month.month % 12 + 1, 1, tzinfo=UTC)


@contextmanager
def _alone(using: str) -> Iterator[bool]:
    """Whether no other archiver is at it."""
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT GET_LOCK(%s, 0)", [_LOCK])
        mine = cursor.fetchone()[0] == 1
        try:
            yield mine
        finally:
            if mine:
                cursor.execute("SELECT RELEASE_LOCK(%s)", [_LOCK])


def _execute(statement: str, using: str) -> bool:
    """Whether it was done; not when somebody reads the table for so long."""
    with connections[using].cursor() as cursor:
        cursor.execute(f"SET SESSION lock_wait_timeout = {_LOCK_WAIT_SECONDS}")
        try:
            cursor.execute(statement)
        except OperationalError as error:
            if sql.error_code(error) != sql.LOCK_WAIT_TIMEOUT:
                raise
            log.info("archive_table_busy", statement=statement[:80])
            return False
        finally:
            cursor.execute("SET SESSION lock_wait_timeout = DEFAULT")
    return True
