"""Put exhausted or poisoned copies back to work: a new generation with a fresh budget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import F, QuerySet
from django.db.models.functions import Now

from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows import Requeued
from notify.models import ReceiveMsg

_Status = ReceiveMsg.Status
FILTERS = {
    "subscription": "id of a subscription; empty: all",
    "biz": "id of a business system; empty: all",
    "status": "exhausted (default) or poison",
}
_STATES = {"exhausted": _Status.EXHAUSTED, "poison": _Status.POISON}


def matching(filter: Mapping[str, Any]) -> QuerySet[ReceiveMsg]:
    """The copies that a filter means. Raises InvalidInput naming the field."""
    if unknown := set(filter) - set(FILTERS):
        raise InvalidInput(f"unknown filter; use {', '.join(FILTERS)}", sorted(unknown)[0])
    state = str(filter.get("status") or "exhausted")
    if state not in _STATES:
        raise InvalidInput("use exhausted or poison", "status")
    rows = ReceiveMsg.objects.filter(status=_STATES[state])
    if filter.get("subscription"):
        rows = rows.filter(biz_receive_id=_number(filter, "subscription"))
    if filter.get("biz"):
        rows = rows.filter(biz_id=_number(filter, "biz"))
    return rows


def _number(filter: Mapping[str, Any], field: str) -> int:
    try:
        return int(filter[field])
    except (TypeError, ValueError):
        raise InvalidInput("use the id, a whole number", field) from None


def requeue(filter: Mapping[str, Any], cursor: str, limit: int) -> Requeued:
    """Requeue the next `limit` copies after `cursor` (an id). A repeated step finds nothing."""
    after = int(cursor or 0)
    rows = matching(filter).filter(id__gt=after).order_by("id")
    ids = list(rows.values_list("id", flat=True)[:limit])
    if not ids:
        return Requeued(cursor="", done=0)
    changed = ReceiveMsg.objects.filter(
        id__in=ids, status__in=[_Status.EXHAUSTED, _Status.POISON]
    ).update(
        status=_Status.PENDING,
        send_times=0,
        generation=F("generation") + 1,
        claimed_by="",
        next_at=Now(),
        updated_at=Now(),
    )
    return Requeued(cursor=str(ids[-1]) if len(ids) == limit else "", done=changed)
