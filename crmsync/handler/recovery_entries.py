"""The entries of the recovery log that marks open and solve."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from crmsync.adapters.outcomes import Auth, Conflict, Invalid, Refused, Retry, Unknown
from crmsync.handler.answers import Answer, Fault
from crmsync.handler.verdicts import Row
from crmsync.models import RecoveryEntry
from crmsync.models.operations import MAX_MESSAGE
from crmsync.monitor import failures
from msgplatform.core.data import claims, sql
from msgplatform.core.data.chunks import chunks

_State = RecoveryEntry.State
_MAX_FIELD = 128
_ENTRY = (
    "policy_id", "crm_id", "operation_id", "record_id", "key", "version", "error_class", "field",
    "reason", "attempts", "request", "state", "created_at", "handled_by",
)  # fmt: skip


def field_and_reason(outcome: object) -> tuple[str, str]:
    """The field at fault and the reason, as the CRM gave them, cut to the length of the columns."""
    match outcome:
        case Invalid(field=field, message=text):
            return field[:_MAX_FIELD], text[:MAX_MESSAGE]
        case Retry(why=text):
            return "", text[:MAX_MESSAGE]
        case (
            Unknown(message=text) | Refused(message=text) | Fault(message=text) | Auth(message=text)
        ):
            return "", text[:MAX_MESSAGE]
        case Conflict(existing_id=other) if other:
            return "", f"The CRM holds this person as another record: {other}"[:MAX_MESSAGE]
        case Conflict():
            return "", "The CRM holds this person as another record, and does not say which."
    return "", ""


def open_entries(dead: Sequence[tuple[Row, Answer, str]], crm_id: int, now: datetime) -> None:
    """Open an entry of the recovery log for each of these records. A record has at most one open
    entry: an entry that is open already is overwritten."""
    if not dead:
        return
    entries = RecoveryEntry.objects.filter(
        record_id__in=[row.id for row, _, _ in dead], state=_State.OPEN
    )
    open_entries = {
        record: (entry, since)
        for record, entry, since in entries.select_for_update().values_list(
            "record_id", "id", "created_at"
        )
    }
    if open_entries:  # the reason may have changed
        failures.take_back(
            RecoveryEntry.objects.filter(id__in=[pk for pk, _ in open_entries.values()])
        )
    new, old = [], []
    for row, answer, error in dead:
        field, reason = field_and_reason(answer.outcome)
        request = msgspec.json.encode(answer.entry.request)
        # The record's version: a newer one with the same values shares this request.
        values: list[Any] = [
            row.policy_id, crm_id, answer.entry.operation, row.id, row.key, row.version, error,
            field, reason, row.attempt, request, int(_State.OPEN),
        ]  # fmt: skip
        if row.id in open_entries:
            entry, since = open_entries[row.id]
            old.append([entry, *values, since, ""])
        else:
            new.append([*values, now, ""])
    table = RecoveryEntry._meta.db_table
    sql.insert(table, _ENTRY, new)
    sql.insert_or_update(table, ("id", *_ENTRY), old)
    failed_records = [
        (row.id, error, field_and_reason(answer.outcome)[1]) for row, answer, error in dead
    ]
    failures.add(crm_id, failed_records, min([now, *(since for _, since in open_entries.values())]))


def solve_entries(record_ids: Sequence[int], crm_id: int, now: datetime) -> None:
    """Mark the entries of these records as solved: the CRM holds the records now."""
    # One query for the whole order: nearly always it finds no open entry.
    entries = RecoveryEntry.objects.filter(crm_id=crm_id, state__in=(_State.OPEN, _State.RETRIED))
    if not record_ids or not entries.order_by().exists():
        return
    for some in chunks(record_ids, claims.CHUNK):
        some_entries = entries.filter(record_id__in=some).order_by()
        if entry_ids := list(some_entries.values_list("id", flat=True)):
            rows = RecoveryEntry.objects.filter(pk__in=entry_ids)
            failures.take_back(rows)
            rows.update(state=_State.SOLVED, handled_at=now)
