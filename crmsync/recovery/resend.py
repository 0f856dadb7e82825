"""Resend records: the version that their CRM confirmed is forgotten, and they begin anew.

Records in flight are left alone, since they are being sent anyway, and so are dismissed records,
since a person decided that. `remote_id` stays, because without it some CRMs would store a record
twice. A record whose request is no longer stored is read again from its source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from django.db import transaction

from crmsync.models import Record, RecoveryEntry
from crmsync.recovery import entries
from msgplatform.core.data import claims, sql, transactions
from msgplatform.core.data.chunks import chunks

_State = Record.State
EXCLUDED_STATES = (_State.QUEUED, _State.DISMISSED)
_NOT_CONFIRMED: Mapping[str, Any] = {"sent_version": 0, "sent_digest": ""}


def resend(record_ids: Sequence[int], started_at: datetime, by: str) -> int:
    """Send the newest version of these records once more, now. Returns their number.

    Only records that last changed before `started_at` are sent: a step that is repeated sends
    nothing twice.
    """

    @transaction.atomic
    def send_page(page: Sequence[int]) -> int:
        rows = Record.objects.select_for_update().filter(id__in=page, updated_at__lte=started_at)
        records = list(rows.exclude(state__in=EXCLUDED_STATES).order_by("id"))
        send_from_scratch(records, by)
        return len(records)

    return sum(
        transactions.retrying(partial(send_page, page)) for page in chunks(record_ids, claims.CHUNK)
    )


def send_from_scratch(records: Sequence[Record], by: str) -> None:
    """Send records as if they had never been sent. They are locked by the caller, and neither in
    flight nor dismissed."""
    sendable, unread = entries.split(records)
    # Entries of records that have to be read stay open until their rows are found and sent.
    solve_entries([record.pk for record in sendable if record.state == _State.DEAD], by)
    entries.begin_anew(sendable, **_NOT_CONFIRMED)
    entries.read_again(unread, by, **_NOT_CONFIRMED)


def solve_entries(record_ids: Sequence[int], by: str) -> None:
    """Close the open entries of records that are sent again."""
    if record_ids:
        rows = RecoveryEntry.objects.filter(
            record_id__in=record_ids, state=RecoveryEntry.State.OPEN
        )
        entry_ids = list(rows.select_for_update().order_by("id").values_list("id", flat=True))
        entries.close(entry_ids, RecoveryEntry.State.RETRIED, sql.now(), by)
