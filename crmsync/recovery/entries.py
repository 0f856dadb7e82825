"""Entries of the recovery log, tried again or dismissed: what the console and bulk jobs share.

    open ── tried again ──> retried ── the CRM confirms the record ──> solved
      ├──── tried again, to be read ──> open, until it was read and confirmed
      ├──── dismissed ──> dismissed
      └──── the CRM confirms the record, or its queue takes work again ──> solved

How operations count: a dead record counted as dead when it ended. Tried again, it is taken back and
its operation is open until it ends anew, so that handler and poller count it like any other. A
dismissed record still counts as dead.

Records are locked before entries, both in the order of ids, as handlers lock them when they mark.
An entry whose record is no longer dead is out of date, since a newer version was read: nothing is
done to a record that is in flight or confirmed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Case, F, Value, When
from django.db.models.functions import Now

from crmsync.models import Operation, Policy, Record, RecoveryEntry
from crmsync.models.operations import UNKNOWN
from crmsync.monitor import failures
from crmsync.operations import endings
from msgplatform.core.data import claims, sql

MAPPING = "mapping"  # the error class of a row of which the mapping made no request
_State = Record.State

# How a record begins anew. UNKNOWN stays: what the CRM may have stored is still looked up.
AGAIN: Mapping[str, Any] = {
    "state": _State.WAITING, "next_at": Now(), "attempt": 0, "claimed_by": "",
    "updated_at": Now(),
    "error_class": Case(When(error_class=UNKNOWN, then=F("error_class")), default=Value("")),
}  # fmt: skip
# Older than any version, and equal to no request: a poller that reads the row finds it changed.
_UNREAD: Mapping[str, Any] = {"version": -1, "digest": "", "updated_at": Now()}


def retry(entry_ids: Sequence[int], by: str) -> int:
    """Send the records of open entries again, now. Returns how many entries those were.

    The newest version that was read is sent. A row that the mapping refused, or whose operation is
    no longer kept, has to be read again: this asks for a run of its policy. What a queue did not
    take is due already. An entry whose record is confirmed becomes solved and does not count.
    """
    with transaction.atomic():
        entries, records = _locked(entry_ids)
        found = [records[e.record_id] for e in entries if e.record_id in records]
        dead = [record for record in found if record.state == _State.DEAD]
        sendable, unread = split(dead)
        begin_anew(sendable)
        read_again(unread, by)
        # Records that wait for their next try are due at once.
        waiting = [r.pk for r in found if r.state in (_State.WAITING, _State.RETRY)]
        _update(waiting, {"next_at": Now(), "updated_at": Now()})
        # Nobody can say yet that their rows are found: they stay open until they were sent.
        to_read = {record.pk for record in unread}
        reading = [entry.pk for entry in entries if entry.record_id in to_read]
        confirmed = {record.pk for record in found if record.state == _State.CONFIRMED}
        solved = [entry.pk for entry in entries if entry.record_id in confirmed]
        retried = [e.pk for e in entries if e.record_id not in confirmed | to_read]
        now = sql.now()
        if reading:
            rows = RecoveryEntry.objects.filter(id__in=reading)
            claims.update_by_key(rows, {"handled_at": now, "handled_by": by[:150]})
        close(solved, RecoveryEntry.State.SOLVED, now, by)
        close(retried, RecoveryEntry.State.RETRIED, now, by)
    return len(retried) + len(reading)


def dismiss(entry_ids: Sequence[int], by: str) -> int:
    """Give up the dead records of open entries. Returns how many entries those were.

    A version of the row that is read later is sent as usual.
    """
    with transaction.atomic():
        entries, records = _locked(entry_ids)
        found = [records[e.record_id] for e in entries if e.record_id in records]
        dead = [record.pk for record in found if record.state == _State.DEAD]
        _update(dead, {"state": _State.DISMISSED, "next_at": None, "updated_at": Now()})
        now = sql.now()
        close([entry.pk for entry in entries], RecoveryEntry.State.DISMISSED, now, by)
    return len(entries)


def locked(entry_id: int) -> tuple[RecoveryEntry, Record] | None:
    """Lock an open entry about a record, and that record, in the caller's transaction; None when
    there is no such entry."""
    entries, records = _locked([entry_id])
    for entry in entries:
        if record := records.get(entry.record_id or 0):
            return entry, record
    return None


def split(records: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    """Records whose request is stored, and those whose rows have to be read again."""
    wanted = {record.operation_id for record in records}
    stored = set(Operation.objects.filter(id__in=wanted).values_list("id", flat=True))
    sendable: list[Record] = []
    unread: list[Record] = []
    for record in records:
        is_stored = record.operation_id in stored and record.error_class != MAPPING
        (sendable if is_stored else unread).append(record)
    return sendable, unread


def begin_anew(records: Sequence[Record], **also: Any) -> None:
    """Send records again, now, and change `also`. They are locked, and not in flight."""
    ended = {_State.CONFIRMED: "confirmed", _State.DEAD: "dead"}
    endings.take_back(
        Counter(
            (record.operation_id, ended[_State(record.state)])
            for record in records
            if record.state in ended
        )
    )
    _update([record.pk for record in records], {**AGAIN, **also})


def read_again(records: Sequence[Record], by: str, **also: Any) -> None:
    """Have the rows of records read again, and sent then: by a comparison of versions, or from the
    beginning where the source has no versions. The records are locked, and not in flight."""
    _update([record.pk for record in records], {**_UNREAD, **also})
    # A run of everything that was asked for already reads these rows too.
    policies = Policy.objects.filter(id__in={record.policy_id for record in records})
    for policy in policies.exclude(requested=Policy.Kind.FULL).select_related("source"):
        kind = Policy.Kind.SWEEP if policy.source.version_column else Policy.Kind.FULL
        Policy.objects.filter(pk=policy.pk).update(requested=kind, requested_by=by[:150])


def close(entry_ids: Sequence[int], state: RecoveryEntry.State, now: datetime, by: str) -> None:
    """End entries, which are locked, with this state."""
    if entry_ids:
        rows = RecoveryEntry.objects.filter(id__in=entry_ids)
        failures.take_back(rows)
        claims.update_by_key(rows, {"state": state, "handled_at": now, "handled_by": by[:150]})


def _locked(entry_ids: Iterable[int]) -> tuple[list[RecoveryEntry], dict[int, Record]]:
    """The open ones of these entries, and their records by id; all of them locked."""
    # Their state is not asked in SQL: MariaDB would go by its index, and lock every open entry.
    chosen = RecoveryEntry.objects.filter(id__in=list(entry_ids)).order_by("id")
    of = {pk for pk in chosen.values_list("record_id", flat=True) if pk is not None}
    records = Record.objects.select_for_update().filter(id__in=of).order_by("id")
    by_id = {record.pk: record for record in records}
    entries = chosen.select_for_update().defer("request")
    return [entry for entry in entries if entry.state == RecoveryEntry.State.OPEN], by_id


def _update(record_ids: Sequence[int], change: Mapping[str, Any]) -> None:
    if record_ids:
        claims.update_by_key(Record.objects.filter(id__in=record_ids), change)
