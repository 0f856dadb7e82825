"""An order that a worker has claimed: which of its records it still owns, and for how long."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
from django.conf import settings
from django.db import connection

from crmsync.adapters.client import CALL_SECONDS
from crmsync.handler.adoption import Adoption, of_crm, remote_ids_among
from crmsync.models import Record
from crmsync.orders import MAX_ENTRIES, Entry, Order
from msgplatform.core import logging
from msgplatform.core.daemons.timer import lease_clock
from msgplatform.core.data import claims, sql, transactions
from msgplatform.core.queues import jobs

log = logging.get(__name__)

# Maximum seconds of an order. A worker that has it longer hangs: its lease is not renewed any more,
# and another process gets the records.
_MAX_SECONDS = 1800.0


class ClaimedRow(NamedTuple):
    """A record that carries the claim; `lease_until` is its `next_at`."""

    record: int
    operation: int
    lease_until: datetime
    is_adopted: bool


class OwnEntries(msgspec.Struct, frozen=True):
    """The entries of an order that still carry its claim. A newer version has replaced the
    `outdated_entries`, and another record still uses the CRM's record of the `shared_deletions`:
    neither is sent."""

    to_send: list[Entry]
    outdated_entries: list[Entry]
    shared_deletions: list[Entry]


class ClaimedOrder:
    """The worker calls `check` and asks `is_lost`; the thread that renews leases calls
    `renew_if_due` regularly.

        claimed ── is_lost: less of the lease is left than a call takes ──> nothing more is sent

    All that reads or renews raises what an unavailable database raises.
    """

    def __init__(self, job: jobs.Claimed) -> None:
        self.job = job
        self.order: Order = job.data
        self._began = lease_clock()
        self._ends = 0.0  # of the lease, by `lease_clock`
        self._ids: Sequence[int] = ()
        self.adoption = Adoption(self.order)

    def check(self) -> OwnEntries:
        """Read the records, and leave out those that no longer carry the order's claim."""
        newest_entries: Sequence[Entry] = self.order.entries
        outdated_entries: list[Entry] = []
        adopted_ids: set[int] = set()
        if not self._is_whole():
            rows = self._claimed_rows()
            operations = {row.record: row.operation for row in rows}
            own_entries = [e for e in self.order.entries if e.record in operations]
            newest_entries = [e for e in own_entries if operations[e.record] == e.operation]
            outdated_entries = [e for e in own_entries if operations[e.record] != e.operation]
            adopted_ids = {row.record for row in rows if row.is_adopted}
        used_ids = self.used_ids(self.order.entries)
        self.adoption.read(adopted_ids)
        to_send: list[Entry] = []
        shared_deletions: list[Entry] = []
        for entry in sorted(newest_entries, key=attrgetter("record")):
            is_shared = entry.request.deleted and entry.remote_id in used_ids
            (shared_deletions if is_shared else to_send).append(entry)
        return OwnEntries(to_send, outdated_entries, shared_deletions)

    def _claimed_rows(self) -> list[ClaimedRow]:
        """The rows that still carry the claim, by id. A lease with little time left is renewed.
        Sets the end of the lease."""
        row_ids = [entry.record for entry in self.order.entries]
        asked_at = lease_clock()
        rows, now = self._read(row_ids)
        # An order may have waited in the queue until little of its lease is left.
        if rows and min(row.lease_until for row in rows) < now + _spare():
            claim = claims.Claim(self.order.claim, [row.record for row in rows], now)
            claims.renew(Record, claim, settings.CRM_LEASE_SECONDS, until="next_at")
            asked_at = lease_clock()
            rows, now = self._read(claim.ids)
        if len(rows) < len(row_ids):
            log.info("order_lost", records=len(row_ids) - len(rows), crm=self.order.crm)
        self._ids = [row.record for row in rows]
        if rows:
            self._ends = asked_at + (min(row.lease_until for row in rows) - now).total_seconds()
        return rows

    def _is_whole(self) -> bool:
        """True if every record still carries the claim for long enough, has the order's operation,
        and is not adopted. One aggregate row shows this. Sets the end of the lease."""
        operations = {entry.operation for entry in self.order.entries}
        row_ids = [entry.record for entry in self.order.entries]
        if len(operations) != 1 or len(row_ids) > MAX_ENTRIES:
            return False
        # Take the time before the answer, which may be late: the lease must not seem to end later.
        asked_at = lease_clock()
        count, until, now = self._count_claimed(
            row_ids, "AND operation_id = %s AND NOT is_adopted", operations
        )
        if count != len(row_ids) or until is None:
            return False
        remaining = sql.read_time(until) - sql.read_time(now)
        if remaining < _spare():
            return False
        self._ids, self._ends = row_ids, asked_at + remaining.total_seconds()
        return True

    def _count_claimed(
        self, row_ids: Iterable[int], condition: str = "", parameters: Iterable[Any] = ()
    ) -> tuple[int, Any, Any]:
        """The number of these records that carry the claim, the earliest end of their leases, and
        the present time; both times are as the database writes them."""
        table = Record._meta.db_table
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT COUNT(*), MIN(next_at), {sql.now_sql()} FROM {table} "  # noqa: S608
                f"{claims.by_primary_key(table)} WHERE id IN ({','.join(map(str, row_ids))}) "
                f"AND state = %s AND claimed_by = %s {condition}",
                [int(Record.State.QUEUED), self.order.claim, *parameters],
            )
            count, until, now = cursor.fetchone()
        return count, until, now

    def claimed_ids(self, entries: Iterable[Entry]) -> set[int]:
        """The records of these entries that still carry the claim. An erasure takes it off them
        while the order is delivered."""
        row_ids = {entry.record for entry in entries}
        rows = Record.objects.filter(
            pk__in=row_ids, claimed_by=self.order.claim, state=Record.State.QUEUED
        )

        def read() -> set[int]:
            # Nearly always all records carry the claim: one count shows that.
            if len(row_ids) <= MAX_ENTRIES and self._count_claimed(row_ids)[0] == len(row_ids):
                return row_ids
            return set(rows.order_by().values_list("id", flat=True))

        return transactions.retrying(read)

    def used_ids(self, entries: Iterable[Entry]) -> set[str]:
        """The remote ids of these deletions that another record, which is not deleted, also has:
        after a conflict two records have one id."""
        deletions = [entry for entry in entries if entry.request.deleted]
        records = of_crm(self.order.crm).filter(deleted=False)
        return remote_ids_among(records, (entry.remote_id for entry in deletions))

    def _read(self, row_ids: Sequence[int]) -> tuple[list[ClaimedRow], datetime]:
        rows = Record.objects.filter(
            pk__in=row_ids, claimed_by=self.order.claim, state=Record.State.QUEUED
        )
        columns = ("id", "operation_id", "next_at", "is_adopted")
        claimed_rows = [
            ClaimedRow(pk, operation, until, is_adopted)
            for pk, operation, until, is_adopted in rows.order_by("id").values_list(*columns)
            if until
        ]
        return claimed_rows, sql.now()

    @property
    def is_lost(self) -> bool:
        """True if the lease has ended, or would end before a call is answered (adapters give up
        after a quarter of it): nothing more may be sent."""
        call_seconds: float = min(CALL_SECONDS, settings.CRM_LEASE_SECONDS / 4)
        return lease_clock() > self._ends - call_seconds

    @property
    def is_overdue(self) -> bool:
        """True if the order has taken longer than any order may, and its lease has ended."""
        return lease_clock() > max(self._began + _MAX_SECONDS, self._ends)

    def renew_if_due(self) -> None:
        """Renew a lease that ends soon."""
        now = lease_clock()
        if not self._ids or now < self._ends - _spare().total_seconds():
            return
        if now > self._began + _MAX_SECONDS:
            return
        claim = claims.Claim(self.order.claim, list(self._ids), sql.now())
        count = claims.renew(Record, claim, settings.CRM_LEASE_SECONDS, until="next_at")
        # After the end of the lease another process may have some of the records: send none.
        is_whole = count == len(self._ids)
        self._ends = now + settings.CRM_LEASE_SECONDS if is_whole else 0.0


def _spare() -> timedelta:
    """The rest of a lease below which it is renewed."""
    lease = settings.CRM_LEASE_SECONDS
    return timedelta(seconds=min(lease * 0.75, max(lease / 2, 2 * CALL_SECONDS)))
