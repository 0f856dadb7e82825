"""Put exhausted or poisoned copies back to work: a new generation with a fresh budget."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db.models import F, QuerySet
from django.db.models.functions import Now

from msgplatform.core import claims, sql
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows import Requeued
from notify.models import BizReceive, ReceiveMsg

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
        of_biz = BizReceive.objects.filter(biz_id=_number(filter, "biz"))
        rows = rows.filter(biz_receive_id__in=list(of_biz.values_list("id", flat=True)))
    return rows


def _number(filter: Mapping[str, Any], field: str) -> int:
    text = str(filter[field])
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidInput("use the id, a whole number", field)
    return int(text)


def requeue(filter: Mapping[str, Any], cursor: str, limit: int) -> Requeued:
    """Requeue the next `limit` copies; a repeated step finds only what is left.

    No page is skipped, because requeued copies leave the set; the cursor is the time of the first
    step, so that a copy that is exhausted again meanwhile is not requeued for ever.
    """
    begun = cursor or sql.now().isoformat()
    rows = matching(filter).filter(updated_at__lte=datetime.fromisoformat(begun))
    # The order of the index (status, biz_receive, next_at): every page costs the same.
    page = rows.order_by("biz_receive_id", "next_at").values_list("id", flat=True)[:limit]
    ids = list(page)
    if not ids:
        return Requeued(cursor="", done=0)
    changed = claims.update_by_key(
        ReceiveMsg.objects.filter(id__in=ids, status__in=list(_STATES.values())),
        {
            "status": _Status.PENDING,
            "send_times": 0,
            "generation": F("generation") + 1,
            "claimed_by": "",
            "next_at": Now(),
            "updated_at": Now(),
        },
    )
    return Requeued(cursor=begun if len(ids) == limit else "", done=changed)
