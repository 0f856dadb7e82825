"""Letters, as the platform sees them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import Q

from msgplatform.core.connections import RedisRole
from msgplatform.core.flows import page
from msgplatform.core.flows.actions import Applied, BulkAction
from msgplatform.core.flows.bulk_pages import Page, read_id
from msgplatform.core.flows.contract import Flow
from msgplatform.core.flows.health import Finding, Health, Status
from msgplatform.core.flows.messages import (
    BY_ID,
    Fields,
    FilterField,
    MessageStore,
    Source,
    ordered,
)
from msgplatform.core.flows.metric import Metric
from msgplatform.core.flows.page import Hit, TimelineEntry
from msgplatform.core.flows.programs import Daemon
from msgplatform.messages import engine, filters
from tests.letters.models import Letter

DELIVERED = Metric("letters_delivered", "Letters that were delivered")


def _status() -> Status:
    delivered = Letter.objects.filter(delivered=True).count()
    return Status(Letter.objects.filter(delivered=False).count(), None, {"delivered": delivered})


def _page(id: str, _after: str = "") -> page.Page | None:
    row = Letter.objects.filter(pk=id).first() if id.isdecimal() else None
    if row is None:
        return None
    entry = TimelineEntry(row.created_at, "Posted", "accepted")
    return page.Page(str(row.pk), f"Letter {row.pk}", {"system": row.biz.name}, row.text, [entry])


class _Delivered:
    """Letters that were delivered and have a word; they go back to the sender."""

    def __init__(self, filter: Mapping[str, Any], _begun: datetime) -> None:
        values = filters.read_filter({"text": FIELDS["text"]}, filter)
        rows = Letter.objects.filter(text__contains=values.get("text", ""), delivered=True)
        self._rows = rows.order_by("pk")

    def page(self, position: str, limit: int) -> Page:
        rows = self._rows.filter(pk__gt=read_id(position)).values_list("pk", flat=True)
        pks = list(rows[:limit])
        return Page(pks, str(pks[-1]) if len(pks) == limit else "")

    def apply(self, ids: Sequence[int]) -> Applied:
        return Applied(Letter.objects.filter(pk__in=ids).delete()[0])


def _lines(ids: Sequence[int]) -> dict[int, Hit]:
    rows = Letter.objects.filter(pk__in=ids).select_related("biz")
    return {
        row.pk: Hit(
            str(row.pk),
            row.text,
            "delivered" if row.delivered else "posted",
            row.created_at,
            row.biz.name,
        )
        for row in rows
    }


def _records(biz: int, ids: Sequence[int]) -> dict[int, Letter]:
    rows = Letter.objects.filter(pk__in=ids, biz_id=biz).order_by("-pk")
    return {row.pk: row for row in rows}


FIELDS: Fields = {
    "id": filters.message_id("A letter's id"),
    "biz": filters.BIZ,
    "text": FilterField("Text", "A word of it"),
}
LETTERS = Source(
    rows=Letter.objects.all,
    lines=_lines,
    indexes=[BY_ID, ordered("biz")],
    conditions={"id": "id", "biz": "biz_id", "text": lambda text: Q(text__contains=text)},
)
MESSAGES = MessageStore(
    fields=FIELDS,
    sources=lambda _values: [LETTERS],
    readings=lambda query, _personal: [*engine.exact_id(query), {"text": query}],
    page=_page,
    records=_records,
)
FLOW = Flow(
    name="letters",
    title="Letters",
    daemons=(Daemon("run_postman", help="delivers"),),
    urls="tests.letters.urls",
    permission="letters.view_letter",
    bulk_permission="letters.change_letter",
    scopes={"letters:read": "read letters", "letters:write": "post letters"},
    messages=MESSAGES,
    actions={
        "return": BulkAction(
            title="Return to the sender", fields={"text": FIELDS["text"]}, select=_Delivered
        )
    },
    health=Health(
        read_status=_status,
        examine=lambda: [Finding("ok", f"a stamp is {settings.LETTERS_STAMP}")],
        metrics=lambda: [DELIVERED.of(Letter.objects.filter(delivered=True).count())],
        declared_metrics=(DELIVERED,),
    ),
    redis=(RedisRole("letters", "LETTERS_REDIS_URL", is_truth=True),),
    queues=("letters-express",),
    queue_pattern=r"letters-\d+",
    icons={"Letter": "stylus_note"},
)
