"""Entries of the recovery log, tried again or dismissed: what the console and bulk jobs share.

How operations count: a dead record counted as dead when it ended. Tried again, it is taken back and
its operation is open until it ends anew, so that handler and poller count it like any other. A
dismissed record still counts as dead.

Records are locked before entries, each by id, in the order of whoever marks records. An entry
whose record is no longer dead is out of date, since a newer version was read: nothing is done to a
record that is on its way or confirmed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Case, F, Value, When
from django.db.models.functions import Now

from crmsync import operation_counts
from crmsync.models import Record, RecoveryEntry
from msgplatform.core.data import claims, sql

UNKNOWN = "unknown"  # the error class of a try that may have been stored: it is looked up first
_State = Record.State

# How a record begins anew; what may have been stored in the CRM is still looked up.
AGAIN: Mapping[str, Any] = {
    "state": _State.WAITING, "next_at": Now(), "attempt": 0, "claimed_by": "",
    "sending_operation": 0, "updated_at": Now(),
    "error_class": Case(When(error_class=UNKNOWN, then=F("error_class")), default=Value("")),
}  # fmt: skip


def retry(entry_ids: Sequence[int], by: str) -> int:
    """Send the records of open entries again, now; how many entries that were.

    What is sent is the newest version that was read. Where the operation does not have its request
    (the mapping failed, or the operation is no longer kept), the poller reads the row again. For
    an operation that its queue did not take, the leases of its records end now. An entry whose
    record is confirmed already becomes solved and does not count.
    """
    with transaction.atomic():
        entries, records = locked(entry_ids)
        found = [records[e.record_id] for e in entries if e.record_id in records]
        revive([record for record in found if record.state == _State.DEAD])
        waiting = [r.pk for r in found if r.state in (_State.WAITING, _State.RETRY)]
        if waiting:
            rows = Record.objects.filter(id__in=waiting)
            claims.update_by_key(rows, {"next_at": Now(), "updated_at": Now()})
        for entry in entries:
            if entry.record_id is None:
                _end_leases(entry)
        confirmed = {record.pk for record in found if record.state == _State.CONFIRMED}
        solved = [entry.pk for entry in entries if entry.record_id in confirmed]
        retried = [entry.pk for entry in entries if entry.record_id not in confirmed]
        now = sql.now()
        close(solved, RecoveryEntry.State.SOLVED, now, by)
        close(retried, RecoveryEntry.State.RETRIED, now, by)
    return len(retried)


def dismiss(entry_ids: Sequence[int], by: str) -> int:
    """Give up the dead records of open entries; how many entries that were.

    A version of the row that is read later is sent as usual.
    """
    with transaction.atomic():
        entries, records = locked(entry_ids)
        found = [records[e.record_id] for e in entries if e.record_id in records]
        dead = [record.pk for record in found if record.state == _State.DEAD]
        if dead:
            rows = Record.objects.filter(id__in=dead)
            given_up = {"state": _State.DISMISSED, "next_at": None, "updated_at": Now()}
            claims.update_by_key(rows, given_up)
        now = sql.now()
        close([entry.pk for entry in entries], RecoveryEntry.State.DISMISSED, now, by)
    return len(entries)


def locked(entry_ids: Iterable[int]) -> tuple[list[RecoveryEntry], dict[int, Record]]:
    """Those of the entries that are open, and their records by id, in the caller's transaction."""
    wanted = list(entry_ids)
    are_open = RecoveryEntry.objects.filter(id__in=wanted, state=RecoveryEntry.State.OPEN)
    of = are_open.filter(record_id__isnull=False).values_list("record_id", flat=True)
    records = Record.objects.select_for_update().filter(id__in=set(of)).order_by("id")
    by_id = {record.pk: record for record in records}
    entries = are_open.select_for_update().defer("request").order_by("id")
    return list(entries), by_id


def revive(dead: Sequence[Record]) -> None:
    """Records that are dead and locked begin anew."""
    if dead:
        rows = Record.objects.filter(id__in=[record.pk for record in dead])
        claims.update_by_key(rows, AGAIN)
        operation_counts.take_back(Counter((record.operation_id, "dead") for record in dead))


def close(entry_ids: Sequence[int], state: RecoveryEntry.State, now: datetime, by: str) -> None:
    """Entries that are locked are no longer open."""
    if entry_ids:
        rows = RecoveryEntry.objects.filter(id__in=entry_ids)
        claims.update_by_key(rows, {"state": state, "handled_at": now, "handled_by": by[:150]})


def _end_leases(entry: RecoveryEntry) -> None:
    """Of the records that a queue did not take, unless they were queued again since."""
    stuck = Record.objects.filter(
        policy_id=entry.policy_id,
        state=_State.QUEUED,
        sending_operation=entry.operation_id,
        updated_at__lte=entry.created_at,
    )
    ids = list(stuck.order_by().values_list("id", flat=True)[: claims.CHUNK])
    if ids:
        claims.update_by_key(stuck.filter(id__in=ids), {"next_at": Now()})
