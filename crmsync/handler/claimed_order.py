"""An order that a worker has claimed: which of its records it still owns, and for how long."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from django.conf import settings

from crmsync.adapters.client import CALL_SECONDS
from crmsync.handler.adoption import Adoption, of_crm
from crmsync.models import Record
from crmsync.orders import Entry, Order
from msgplatform.core import logging
from msgplatform.core.data import claims, sql
from msgplatform.core.data.chunks import chunks
from msgplatform.core.queues import jobs

log = logging.get(__name__)

# A worker that has an order for longer hangs: the lease is renewed no more, so that another handler
# gets the records.
_MAX_SECONDS = 1800.0


class ClaimedOrder:
    """The worker calls `check` and asks `is_lost`; the thread that renews leases calls
    `renew_if_due` regularly.

        claimed ── is_lost: less of the lease is left than a call takes ──> nothing more is sent
    """

    def __init__(self, job: jobs.Claimed) -> None:
        self.job = job
        self.order: Order = job.data
        self._began = time.monotonic()
        self._ends = 0.0  # of the lease, monotonic
        self._ids: Sequence[int] = ()
        self.adoption = Adoption(self.order)

    def check(self) -> tuple[list[Entry], list[Entry], list[Entry]]:
        """Read the records, and leave out those that no longer carry the order's claim. Returns
        the entries to be sent, those that a newer version has replaced, and deletions of a record
        in the CRM that another record still uses.

        Raises what an unavailable database raises.
        """
        entries = {entry.record: entry for entry in self.order.entries}
        rows, now = self._read(list(entries))
        # An order may have waited in the queue until little of its lease is left.
        if rows and min(row[2] for row in rows) < now + _spare():
            claim = claims.Claim(self.order.claim, [row_id for row_id, *_ in rows], now)
            claims.renew(Record, claim, settings.CRM_LEASE_SECONDS, until="next_at")
            rows, now = self._read(claim.ids)
        if len(rows) < len(entries):
            log.info("order_lost", records=len(entries) - len(rows), crm=self.order.crm)
        self._ids = [row_id for row_id, *_ in rows]
        if rows:
            self._ends = time.monotonic() + (min(row[2] for row in rows) - now).total_seconds()
        to_send: list[Entry] = []
        outdated_entries: list[Entry] = []
        shared_deletions: list[Entry] = []
        used_ids = self.used_ids(self.order.entries)
        self.adoption.read({row[0] for row in rows if row[3]})
        for row_id, operation, *_ in rows:
            entry = entries[row_id]
            if operation != entry.operation:
                outdated_entries.append(entry)
            elif entry.request.deleted and entry.remote_id in used_ids:
                shared_deletions.append(entry)
            else:
                to_send.append(entry)
        return to_send, outdated_entries, shared_deletions

    def used_ids(self, entries: Iterable[Entry]) -> set[str]:
        """The remote ids of these deletions that another record has which is not deleted: after a
        conflict two records have one id.

        Raises what an unavailable database raises.
        """
        deletions = [entry for entry in entries if entry.request.deleted]
        remote_ids = sorted({entry.remote_id for entry in deletions} - {""})
        used_ids: set[str] = set()
        for some in chunks(remote_ids, claims.CHUNK):
            rows = of_crm(self.order.crm).filter(remote_id__in=some, deleted=False)
            used_ids.update(rows.order_by().values_list("remote_id", flat=True))
        return used_ids

    def _read(
        self, row_ids: Sequence[int]
    ) -> tuple[list[tuple[int, int, datetime, bool]], datetime]:
        rows = Record.objects.filter(
            pk__in=row_ids, claimed_by=self.order.claim, state=Record.State.QUEUED
        )
        columns = ("id", "operation_id", "next_at", "is_adopted")
        values = list(rows.order_by("id").values_list(*columns))
        return [(a, b, until, c) for a, b, until, c in values if until], sql.now()

    @property
    def is_lost(self) -> bool:
        """True if the lease has ended, or would end before a call is answered (adapters give up
        after a quarter of it): nothing more may be sent."""
        call_seconds: float = min(CALL_SECONDS, settings.CRM_LEASE_SECONDS / 4)
        return time.monotonic() > self._ends - call_seconds

    def renew_if_due(self) -> None:
        """Renew a lease that ends soon. Raises what an unavailable database raises."""
        now = time.monotonic()
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
