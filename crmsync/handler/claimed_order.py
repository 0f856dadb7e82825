"""The order that a lane has in hand: which of its records are still ours, and for how long."""

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

# A lane that has an order for longer hangs: its lease is renewed no more, so that another handler
# gets the records.
_MAX_SECONDS = 1800.0


class ClaimedOrder:
    """The lane calls `check` and asks `is_lost`; the thread that keeps the leases calls
    `renew_if_due` every now and then.

        in hand ── is_lost: less of the lease is left than a call takes ──> nothing more is sent
    """

    def __init__(self, claimed: jobs.Claimed) -> None:
        self.claimed = claimed
        self.order: Order = claimed.data
        self._began = time.monotonic()
        self._ends = 0.0  # of the lease, monotonic
        self._ids: Sequence[int] = ()
        self.adoption = Adoption(self.order)

    def check(self) -> tuple[list[Entry], list[Entry], list[Entry]]:
        """Read the records, and drop those that no longer carry the order's claim. Returns entries
        that are still to be sent, those that a newer version has replaced, and deletions of what
        another record still uses.

        Raises what an unavailable database raises.
        """
        wanted = {entry.record: entry for entry in self.order.entries}
        rows, now = self._read(list(wanted))
        # An order may have waited in the queue until little of its lease is left.
        if rows and min(row[2] for row in rows) < now + _spare():
            claim = claims.Claim(self.order.claim, [row_id for row_id, *_ in rows], now)
            claims.renew(Record, claim, settings.CRM_LEASE_SECONDS, until="next_at")
            rows, now = self._read(claim.ids)
        if len(rows) < len(wanted):
            log.info("order_lost", records=len(wanted) - len(rows), crm=self.order.crm)
        self._ids = [row_id for row_id, *_ in rows]
        if rows:
            self._ends = time.monotonic() + (min(row[2] for row in rows) - now).total_seconds()
        ours: list[Entry] = []
        replaced: list[Entry] = []
        kept: list[Entry] = []
        used = self.used_ids(self.order.entries)
        self.adoption.read({row[0] for row in rows if row[3]})
        for row_id, operation, *_ in rows:
            entry = wanted[row_id]
            if operation != entry.operation:
                replaced.append(entry)
            elif entry.request.deleted and entry.remote_id in used:
                kept.append(entry)
            else:
                ours.append(entry)
        return ours, replaced, kept

    def used_ids(self, entries: Iterable[Entry]) -> set[str]:
        """Of the remote ids that these deletions name, those that a record has which is not
        deleted: after a conflict two records have one id.

        Raises what an unavailable database raises.
        """
        deletions = [entry for entry in entries if entry.request.deleted]
        remote_ids = sorted({entry.remote_id for entry in deletions} - {""})
        used: set[str] = set()
        for some in chunks(remote_ids, claims.CHUNK):
            rows = of_crm(self.order.crm).filter(remote_id__in=some, deleted=False)
            used.update(rows.order_by().values_list("remote_id", flat=True))
        return used

    def _read(
        self, row_ids: Sequence[int]
    ) -> tuple[list[tuple[int, int, datetime, bool]], datetime]:
        rows = Record.objects.filter(
            pk__in=row_ids, claimed_by=self.order.claim, state=Record.State.QUEUED
        )
        columns = ("id", "operation_id", "next_at", "is_adopted")
        found = list(rows.order_by("id").values_list(*columns))
        return [(a, b, until, c) for a, b, until, c in found if until], sql.now()

    @property
    def is_lost(self) -> bool:
        """The lease ended, or would before a call is answered (adapters give up after a quarter
        of it): nothing more is sent."""
        least: float = min(CALL_SECONDS, settings.CRM_LEASE_SECONDS / 4)
        return time.monotonic() > self._ends - least

    def renew_if_due(self) -> None:
        """Raises what an unavailable database raises."""
        now = time.monotonic()
        if not self._ids or now < self._ends - _spare().total_seconds():
            return
        if now > self._began + _MAX_SECONDS:
            return
        claim = claims.Claim(self.order.claim, list(self._ids), sql.now())
        renewed = claims.renew(Record, claim, settings.CRM_LEASE_SECONDS, until="next_at")
        # When it was over, another process may have some of the records: send none of them.
        is_whole = renewed == len(self._ids)
        self._ends = now + settings.CRM_LEASE_SECONDS if is_whole else 0.0


def _spare() -> timedelta:
    """A lease with less than this left is renewed."""
    lease = settings.CRM_LEASE_SECONDS
    return timedelta(seconds=min(lease * 0.75, max(lease / 2, 2 * CALL_SECONDS)))
