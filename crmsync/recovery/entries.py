"""Resend or dismiss entries of the recovery log, for the console and for bulk jobs; and resend
records as if they had never been sent.

    open ── tried again ──> retried ── the CRM confirms the record ──> solved
      ├──── tried again, to be read ──> open, until it was read and confirmed
      ├──── dismissed ──> dismissed
      └──── the CRM confirms the record, or its queue takes work again ──> solved

An operation counts a dead record as dead. When the record is tried again, this count is taken back
and the operation is open until the record ends once more: handler and poller count that ending as
usual. A dismissed record still counts as dead.

Records are locked before entries, both in the order of ids, as handlers lock them when they mark.
An entry whose record is no longer dead is out of date, since a newer version was read: nothing is
done to a record that is in flight or confirmed.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from django.db import transaction
from django.db.models import Case, F, PositiveSmallIntegerField, Value, When
from django.db.models.functions import Now

from crmsync import orders
from crmsync.models import Operation, Policy, Record, RecoveryEntry
from crmsync.models.operations import MAPPING, UNKNOWN
from crmsync.monitor import failures
from crmsync.operations import take_back_endings
from msgplatform.core.data import chunks, claims, sql, transactions

_State = Record.State

# The columns of a record that begins anew. UNKNOWN stays, so that the record is still looked up
# first.
RESET: Mapping[str, Any] = {
    "state": _State.WAITING, "next_at": Now(), "attempt": 0, "claimed_by": "",
    "updated_at": Now(),
    "error_class": Case(When(error_class=UNKNOWN, then=F("error_class")), default=Value("")),
    # A removal that is sent anew is counted anew.
    "removal": Case(
        When(removal=Record.Removal.RELEASED, then=Value(Record.Removal.PENDING)),
        default=F("removal"),
        output_field=PositiveSmallIntegerField(),
    ),
}  # fmt: skip
# A version older than any other, and no request's digest: a poller finds the row changed.
_UNREAD_VERSION = -1
_UNREAD: Mapping[str, Any] = {"version": _UNREAD_VERSION, "digest": "", "updated_at": Now()}


def resend_entries(entry_ids: Sequence[int], by: str) -> int:
    """Send the records of open entries once more, now. Returns the number of entries.

    The newest version that was read is sent. A row that the mapping refused, or whose operation is
    no longer kept, has to be read again: this asks for a run of its policy. Records that a queue
    did not take become due by themselves. An entry whose record is confirmed becomes solved,
    uncounted.
    """
    with transaction.atomic():
        entries, records = _lock(entry_ids)
        entry_records = [records[e.record_id] for e in entries if e.record_id in records]
        dead = [record for record in entry_records if record.state == _State.DEAD]
        sendable, unread = split(dead)
        begin_anew(sendable)
        read_again(unread, by)
        # Records that wait for their next try become due at once.
        states = _State.WAITING, _State.RETRY
        scheduled_record_ids = [record.pk for record in entry_records if record.state in states]
        _update(scheduled_record_ids, {"next_at": Now(), "updated_at": Now()})
        # Rows of unread records may be gone at the source: their entries stay open until the
        # records were sent.
        unread_ids = {record.pk for record in unread}
        unread_entry_ids = [entry.pk for entry in entries if entry.record_id in unread_ids]
        confirmed_ids = {record.pk for record in entry_records if record.state == _State.CONFIRMED}
        solved_ids = [entry.pk for entry in entries if entry.record_id in confirmed_ids]
        retried_entry_ids = [e.pk for e in entries if e.record_id not in confirmed_ids | unread_ids]
        now = sql.now()
        rows = RecoveryEntry.objects.filter(id__in=unread_entry_ids)
        claims.update_by_key(rows, {"handled_at": now, "handled_by": by[:150]})
        close(solved_ids, RecoveryEntry.State.SOLVED, now, by)
        close(retried_entry_ids, RecoveryEntry.State.RETRIED, now, by)
    return len(retried_entry_ids) + len(unread_entry_ids)


def dismiss(entry_ids: Sequence[int], by: str) -> int:
    """Dismiss the dead records of open entries. Returns the number of entries.

    A version of the row that is read later is sent as usual.
    """
    with transaction.atomic():
        entries, records = _lock(entry_ids)
        entry_records = [records[e.record_id] for e in entries if e.record_id in records]
        dead_ids = [record.pk for record in entry_records if record.state == _State.DEAD]
        _update(dead_ids, {"state": _State.DISMISSED, "next_at": None, "updated_at": Now()})
        for entry in entries:
            record = records.get(entry.record_id or 0)
            if record and record.state == _State.DEAD and record.version == _UNREAD_VERSION:
                # The row was to be read again: the entry's version is dismissed.
                columns: dict[str, Any] = {"version": entry.version}
                if entry.request:
                    request = msgspec.json.decode(bytes(entry.request), type=orders.Request)
                    columns["digest"] = orders.digest(request)
                _update([record.pk], columns)
        now = sql.now()
        close([entry.pk for entry in entries], RecoveryEntry.State.DISMISSED, now, by)
    return len(entries)


def lock_entry(entry_id: int) -> tuple[RecoveryEntry, Record] | None:
    """Lock an open entry about a record and its record, in the caller's transaction. None if there
    is no such entry."""
    entries, records = _lock([entry_id])
    for entry in entries:
        if record := records.get(entry.record_id or 0):
            return entry, record
    return None


def split(records: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    """Split records into those with a stored request and those whose rows have to be read again,
    because their operation is gone or the mapping refused them. Call it before closing entries: an
    open entry has the reason why its record is dead."""
    operation_ids = {record.operation_id for record in records}
    stored_ids = set(Operation.objects.filter(id__in=operation_ids).values_list("id", flat=True))
    dead_ids = [record.pk for record in records if record.state == _State.DEAD]
    entries = RecoveryEntry.open_entries(record_id__in=dead_ids, error_class=MAPPING)
    refused_ids = set(entries.order_by().values_list("record_id", flat=True))
    sendable: list[Record] = []
    unread: list[Record] = []
    for record in records:
        is_stored = record.operation_id in stored_ids and record.pk not in refused_ids
        (sendable if is_stored else unread).append(record)
    return sendable, unread


def begin_anew(records: Sequence[Record], **changes: Any) -> None:
    """Send records from the beginning, now, and make `changes`. The caller has locked the records,
    and none is in flight."""
    count_names = {_State.CONFIRMED: "confirmed", _State.DEAD: "dead"}
    take_back_endings(
        Counter(
            (record.operation_id, count_names[_State(record.state)])
            for record in records
            if record.state in count_names
        )
    )
    _update([record.pk for record in records], {**RESET, **changes})


def read_again(records: Sequence[Record], by: str, **changes: Any) -> None:
    """Ask for a run that reads and sends the rows of these records again: a comparison of versions,
    or everything if the source has no versions. The caller has locked the records, and none is in
    flight."""
    _update([record.pk for record in records], {**_UNREAD, **changes})
    # An earlier request for everything covers these rows too.
    policies = Policy.objects.filter(id__in={record.policy_id for record in records})
    for policy in policies.exclude(requested=Policy.Kind.FULL).select_related("source"):
        kind = Policy.Kind.SWEEP if policy.source.version_column else Policy.Kind.FULL
        Policy.objects.filter(pk=policy.pk).update(requested=kind, requested_by=by[:150])


def close(entry_ids: Sequence[int], state: RecoveryEntry.State, now: datetime, by: str) -> None:
    """End entries, which the caller has locked, with this state."""
    if entry_ids:
        rows = RecoveryEntry.objects.filter(id__in=entry_ids)
        failures.take_back(rows)
        claims.update_by_key(rows, {"state": state, "handled_at": now, "handled_by": by[:150]})


def _lock(entry_ids: Iterable[int]) -> tuple[list[RecoveryEntry], dict[int, Record]]:
    """Lock these entries and their records. Returns the open entries, and the records by id."""
    # No condition on the state: MariaDB would use its index and lock every open entry.
    rows = RecoveryEntry.objects.filter(id__in=list(entry_ids)).order_by("id")
    record_ids = {pk for pk in rows.values_list("record_id", flat=True) if pk is not None}
    records = Record.objects.select_for_update().filter(id__in=record_ids).order_by("id")
    by_id = {record.pk: record for record in records}
    entries = rows.select_for_update().defer("request")
    return [entry for entry in entries if entry.state == RecoveryEntry.State.OPEN], by_id


def _update(record_ids: Sequence[int], change: Mapping[str, Any]) -> None:
    claims.update_by_key(Record.objects.filter(id__in=record_ids), change)


# -- sending records from scratch ----------------------------------------------------------------
EXCLUDED_STATES = (_State.QUEUED, _State.DISMISSED)
_NOT_CONFIRMED: Mapping[str, Any] = {"sent_version": 0, "sent_digest": ""}


def resend(record_ids: Sequence[int], started_at: datetime, by: str) -> int:
    """Send the newest version of these records once more, now. Returns their number.

    The version that the CRM confirmed is forgotten. Records in flight are left alone, since they
    are being sent anyway, and so are dismissed records, since a person decided that. `remote_id`
    stays, because without it some CRMs would store a record twice. A record whose request is no
    longer stored is read again from its source.

    Only records that last changed before `started_at` are sent: a step that is repeated sends
    nothing twice.
    """

    @transactions.repeatable
    def send_page(page: Sequence[int]) -> int:
        rows = Record.objects.select_for_update().filter(id__in=page, updated_at__lte=started_at)
        records = list(rows.exclude(state__in=EXCLUDED_STATES).order_by("id"))
        send_from_scratch(records, by)
        return len(records)

    return sum(map(send_page, chunks(record_ids, claims.CHUNK)))


def send_from_scratch(records: Sequence[Record], by: str) -> None:
    """Send records as if they had never been sent. The caller has locked them; none is in flight or
    dismissed."""
    sendable, unread = split(records)
    # Entries of records that have to be read stay open until the rows are found and sent.
    close_as_retried([record.pk for record in sendable if record.state == _State.DEAD], by)
    begin_anew(sendable, **_NOT_CONFIRMED)
    read_again(unread, by, **_NOT_CONFIRMED)


def close_as_retried(record_ids: Sequence[int], by: str) -> None:
    """Close the open entries of records that are sent again."""
    if record_ids:
        rows = RecoveryEntry.open_entries(record_id__in=record_ids)
        entry_ids = list(rows.select_for_update().order_by("id").values_list("id", flat=True))
        close(entry_ids, RecoveryEntry.State.RETRIED, sql.now(), by)
