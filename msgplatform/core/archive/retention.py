"""Delete rows that are older than an archive keeps them, with their parts: whole months if the
tables have partitions, else chunks of rows.

A month with a row that is not final stays, and so do the months after it. Every step can be
repeated: the next step finishes the work of a killed process.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

from django.db import DatabaseError
from django.db.models import Exists, OuterRef, Q, QuerySet

from msgplatform.core import alerts
from msgplatform.core.archive import partitions
from msgplatform.core.archive.description import CHUNK, DAY, Archive, Table, delete_whole, horizon
from msgplatform.core.archive.partitions import partitions_of
from msgplatform.core.daemons import bisect
from msgplatform.core.daemons.timer import Every
from msgplatform.core.data import ids, sql, transactions
from msgplatform.core.failpoints import failpoint
from msgplatform.core.lazy_text import lazy_message

EVERY_SECONDS = 600.0
# No alert before this time, since long reads or rows that are not final may delay a deletion.
PATIENCE_SECONDS = 7 * DAY
NOT_FINAL = "Some of them are not final, or others use the table."


class Retention:
    """Makes partitions and deletes old rows of one archive. The owner's loop may call at any
    time."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._next_prepare, self._next_purge = Every(EVERY_SECONDS), Every(EVERY_SECONDS)
        # The beginning of the present purge, which deletes only rows that were too old then. Rows
        # become too old all the time, so a purge that included them would never end.
        self._purge_began: datetime | None = None
        self._no_partitions = ""  # why the last attempt to make partitions failed

    def turn(self) -> bool:
        """`prepare` and `purge`, for an owner without other work. True while there is more to
        do."""
        if not (self._next_prepare.is_due or self._next_purge.is_due):
            return False
        now = sql.now()
        self.prepare(now)
        return self.purge(now)

    def prepare(self, now: datetime) -> None:
        """Make partitions ahead, if due.

        Raises Unavailable when the archive's tables do not exist, or the error of a database that
        is unavailable. A refusal of the database becomes an alert instead: new rows then go into
        the last partition.
        """
        if not self._next_prepare.is_due:
            return
        try:
            partitions.prepare(self._archive, now)
            self._no_partitions = ""
        except DatabaseError as error:
            self._next_prepare.restart()
            if transactions.is_away(error):
                raise
            self._no_partitions = reason(error)
            self._report(now, self._no_partitions)
        self._next_prepare.restart()

    def purge(self, now: datetime) -> bool:
        """Delete a bounded number of rows or months, if due. True while there is more to delete."""
        # Restart the timer first, so that a purge that raises is not repeated at once.
        if not self._next_purge.take():
            return False
        began, self._purge_began = self._purge_began or now, None
        try:
            count = purge(self._archive, began)
        except DatabaseError as error:
            self._report(now, reason(error))
            raise
        if count:
            self._purge_began = began
            self._next_purge.at_once()
        else:
            self._report(now, NOT_FINAL)
        return count > 0

    def _report(self, now: datetime, why: str) -> None:
        report(self._archive, now, self._no_partitions or why, self._no_partitions)


def purge(archive: Archive, now: datetime) -> int:
    """Delete a month or a chunk of rows of each table. Returns the number of deleted months and
    rows, without parts. 0: nothing is left to delete, another process deletes, or the rest must not
    be deleted yet (see `overdue`)."""
    age = archive.keep()
    if age is None:
        return 0
    end_id, deleted_count = horizon(now, age), 0
    with partitions.alone(archive) as has_lock:
        if not has_lock:
            return 0
        for table in archive.tables:
            kept_condition = table.not_final(now) if table.not_final else Q(pk__in=())
            if partitions_of(table):
                deleted_count += _drop(table, end_id, kept_condition)
                failpoint("archive_half_gone")
                deleted_count += _purge_parts(table, end_id)
                continue
            deleted_count += _delete_chunk(
                table, table.rows().filter(table.below(end_id)).exclude(kept_condition)
            )
            for part in table.parts:  # parts without a row go by their own age
                rowless_parts = part.rows().filter(part.below(end_id), **{part.of: 0})
                deleted_count += _delete_chunk(part, rowless_parts)
    return deleted_count


def _drop(table: Table, end_id: int, kept_condition: Q) -> int:
    """Drop the oldest partition if it is below `end_id` and has no row to keep. 1 if dropped."""
    for oldest in partitions_of(table)[:1]:
        if oldest.bound is not None and oldest.is_below(end_id):
            rows = table.rows().filter(kept_condition, table.below(oldest.bound))
            # Look without the lock of `drop` first, because finding no row may take a while.
            return int(not rows.exists() and partitions.drop(table, oldest, rows))
    return 0


def _purge_parts(table: Table, end_id: int) -> int:
    """Delete the parts of dropped rows. Parts are later than their rows, so that some parts are in
    months that stay."""
    # The first id of the oldest remaining month, `end_id` at most.
    floor = min([end_id, *(month.first for month in partitions_of(table)[:1] if month.bound)])
    deleted_count = 0
    for part in table.parts:
        deleted_count += _drop(part, floor, Q(**{f"{part.of}__gte": floor}))
        owners = table.rows().filter(id=OuterRef(part.of))
        orphans = part.rows().filter(**{f"{part.of}__gt": 0, f"{part.of}__lt": floor})
        # Order by the index that finds the rows. Ordering by id would read the whole table.
        deleted_count += _delete_chunk(part, orphans.filter(~Exists(owners)).order_by(part.of))
        deleted_count += _purge_parts(part, floor)
    return deleted_count


def _delete_chunk(table: Table, rows: QuerySet[Any]) -> int:
    """Delete up to CHUNK of the rows, with their parts; returns the number of rows. A row that the
    database refuses to delete stays, and delays no other row. Raises DatabaseError if the database
    refuses all rows."""

    def delete(row_ids: Sequence[int]) -> Sequence[int]:
        transactions.retrying(partial(delete_whole, table, row_ids), table.using)
        return row_ids

    old_ids = list(rows.values_list(table.column, flat=True)[:CHUNK])
    return len(bisect.leave_refused(old_ids, delete, table=table.name))


# -- what cannot go ------------------------------------------------------------------------------
def overdue(archive: Archive, now: datetime) -> tuple[float, str]:
    """The seconds for which rows have been overdue for deletion, and their table.

    (0, "") when nothing is overdue. Raises DatabaseError.
    """
    age = archive.keep()
    if age is None:
        return 0.0, ""
    end_id = horizon(now, age)
    oldest_ids: list[tuple[int, str]] = []
    for table in archive.tables:
        # The end of the oldest month, else the id of the oldest row, which is deleted next.
        bounds = [month.bound for month in partitions_of(table)[:1] if month.bound]
        bounds = bounds or list(table.rows().values_list(table.column, flat=True)[:1])
        oldest_ids += [(bound, table.name) for bound in bounds]
    oldest_id, name = min(oldest_ids, default=(end_id, ""))
    if oldest_id >= end_id:
        return 0.0, ""
    return (ids.datetime_of(end_id) - ids.datetime_of(oldest_id)).total_seconds(), name


def report(archive: Archive, now: datetime, why: str, no_partitions: str = "") -> None:
    """Raise the archive's alert if its rows are overdue (reason `why`) or partitions could not be
    made (the other reason); else resolve the alert. Raises DatabaseError."""
    seconds, table = overdue(archive, now)
    key = f"{archive.name}.retention"
    if seconds >= PATIENCE_SECONDS:
        subject = lazy_message(
            "The oldest rows of the table %(table)s cannot be deleted", table=table
        )
        days = round(seconds / DAY)
        text = lazy_message(
            "They should have been deleted %(days)d days ago. %(why)s", days=days, why=why
        )
    elif no_partitions:
        subject = lazy_message(
            "No partitions can be made for the archive %(archive)s", archive=archive.name
        )
        text = lazy_message(
            "New rows go into the last partition, and nothing is lost. %(why)s",
            why=no_partitions,
        )
    else:
        alerts.resolve(key, comes_again=True)
        return
    alerts.raise_event(alerts.AlertEvent(key, subject, text, key), comes_again=True)


def reason(error: Exception) -> str:
    """The text of an error for an alert."""
    return f"{type(error).__name__}: {error}"[:500]
