"""Ends deliveries that wait, without an attempt."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from django.db.models.functions import Now

from msgplatform.core.data import claims
from notify.models import ReceiveMsg


def end(
    delivery_ids: Sequence[int],
    waiting: Collection[int],
    due_before: datetime,
    status: int,
    error: str,
    claim: str | None = None,
) -> list[int]:
    """Give up to claims.CHUNK deliveries this final status, in the caller's transaction, if they
    still are in one of the statuses `waiting`, and were due by then or, where one is named, carry
    the claim; the ids of those."""
    # Locked first, so that counters name the rows that change. By id alone: for a condition on the
    # status MariaDB might lock by another index.
    rows = ReceiveMsg.objects.select_for_update().filter(id__in=delivery_ids).order_by("id")
    ended = [
        pk
        for pk, current, next_at, holder in rows.values_list(
            "id", "status", "next_at", "claimed_by"
        )
        if current in waiting and (next_at <= due_before if claim is None else holder == claim)
    ]
    if ended:
        values = {"status": status, "error": error, "claimed_by": "", "updated_at": Now()}
        claims.update_by_key(ReceiveMsg.objects.filter(id__in=ended), values)
    return ended
