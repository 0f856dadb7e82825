"""The lines of a search result."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from django.db.models import Count
from django.utils.translation import gettext as _

from msgplatform.core.flows import Hit
from msgplatform.core.lazy_text import joined
from msgplatform.models import Biz
from notify.archive.stores import Store
from notify.models import BizMsg, ReceiveMsg


def lines(place: Store, message_ids: Sequence[int]) -> dict[int, Hit]:
    """Message → its line; three queries, however many they are."""
    columns = ["id", "event_type", "biz_id", "created_at", *([] if place.cold else ["state"])]
    rows = list(place.messages.filter(id__in=message_ids).order_by().values(*columns))
    names = {biz.pk: str(biz) for biz in Biz.objects.filter(id__in={r["biz_id"] for r in rows})}
    # Message → status → how many of its deliveries are in it.
    ends: dict[int, dict[int, int]] = defaultdict(dict)
    deliveries = place.deliveries_of(message_ids).order_by().values_list("msg_id", "status")
    for message_id, status, count in deliveries.annotate(Count("id")):
        ends[message_id][status] = count
    return {
        row["id"]: Hit(
            id=str(row["id"]),
            title=row["event_type"],
            state=_state(row.get("state", BizMsg.State.SPLIT), ends[row["id"]], place.cold),
            at=row["created_at"],
            biz=names.get(row["biz_id"], str(row["biz_id"])),
        )
        for row in rows
    }


def _state(state: int, ends: dict[int, int], is_archived: bool) -> str:
    if state == BizMsg.State.ACCEPTED:
        return str(BizMsg.State.ACCEPTED.label)
    is_alone = len(ends) == 1
    parts = [
        str(ReceiveMsg.Status(status).label) + ("" if is_alone else f" {count}")
        for status, count in sorted(ends.items())
    ]
    text = joined(parts) or _("no subscriber")
    return _("%s (archived)") % text if is_archived else text
