"""The previews of CRM sync's bulk actions, and the endings of records that were resent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from crmsync.messages import lines as message_lines
from crmsync.messages import policies
from crmsync.models import Record, RecoveryEntry
from msgplatform.core.data import ids as id_numbers
from msgplatform.core.data.chunks import chunks
from msgplatform.core.flows import Ending, Hit, Preview
from msgplatform.core.flows.bulk_pages import Described, Tally

_CHUNK = 2000
_State = Record.State
_ENDINGS: Mapping[int, Ending] = {
    _State.CONFIRMED: "arrived", _State.DEAD: "failed", _State.DISMISSED: "failed",
}  # fmt: skip
# A policy's id, and why an entry is there or in which state a record is.
Kind = tuple[int, str]


def show(rows: Tally[Kind], started_at: datetime, of_records: bool) -> Preview:
    """The preview of entries, or of records, that were counted."""
    policies_by_id = policies.by_id()
    titles = {(pk, what): f"{policies_by_id.get(pk, pk)} · {what}" for pk, what in rows.groups}
    record_ids = rows.sample if of_records else _records_of(rows.sample)
    return rows.preview(started_at, titles, _lines(record_ids, policies_by_id))


def outcome(ids: Sequence[str], of_records: bool) -> dict[str, Ending]:
    """The endings of the records of these entries, or of these records."""
    record_by_id = _records_named(ids, of_records)
    rows = Record.objects.filter(id__in=[pk for pk in record_by_id.values() if pk is not None])
    # A record whose row is to be read again keeps its state until the poller has done so.
    endings: dict[int, Ending] = {
        pk: "waiting" if version < 0 else _ENDINGS.get(state, "waiting")
        for pk, state, version in rows.order_by().values_list("id", "state", "version")
    }
    ending_by_id: dict[str, Ending] = {
        pk: endings[record] for pk, record in record_by_id.items() if record in endings
    }
    # An entry about an operation that its queue did not take has no record of its own.
    entry_ids = [int(pk) for pk, record in record_by_id.items() if record is None]
    for entry, state in RecoveryEntry.objects.filter(id__in=entry_ids).values_list("id", "state"):
        ending_by_id[str(entry)] = "arrived" if state == RecoveryEntry.State.SOLVED else "waiting"
    return ending_by_id


def lines(ids: Sequence[str], of_records: bool) -> list[Hit]:
    """The lines of the records of these entries, or of these records."""
    record_by_id = _records_named(ids, of_records)
    record_ids = [record for pk in ids if (record := record_by_id.get(pk)) is not None]
    return _lines(record_ids, policies.by_id())


def _records_named(ids: Sequence[str], of_records: bool) -> dict[str, int | None]:
    """Noted id → its record; entries that are gone are left out."""
    if of_records:
        return {pk: int(pk) for pk in ids}
    rows = RecoveryEntry.objects.filter(id__in=[int(pk) for pk in ids])
    return {str(pk): record for pk, record in rows.values_list("id", "record_id")}


def entries(ids: Sequence[int]) -> Described[Kind]:
    for some in chunks(ids, _CHUNK):
        rows = RecoveryEntry.objects.filter(id__in=some)
        for pk, policy, why, at in rows.values_list("id", "policy_id", "error_class", "created_at"):
            yield pk, (policy, why), at


def records(ids: Sequence[int]) -> Described[Kind]:
    for some in chunks(ids, _CHUNK):
        rows = Record.objects.filter(id__in=some).values_list("id", "policy_id", "state")
        for pk, policy, state in rows:
            yield pk, (policy, str(_State(state).label)), id_numbers.datetime_of(pk)


def _records_of(entry_ids: Sequence[int]) -> list[int]:
    rows = RecoveryEntry.objects.filter(id__in=entry_ids, record_id__isnull=False)
    return [record for record in rows.values_list("record_id", flat=True) if record is not None]


def _lines(record_ids: Sequence[int], policies_by_id: policies.Policies) -> list[Hit]:
    return list(message_lines.of_records(record_ids, policies_by_id).values())
