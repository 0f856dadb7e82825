"""Letters, as the platform sees them."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

from django.conf import settings
from django.db.models import Q

from msgplatform.api import filter_fields
from msgplatform.core import flows
from msgplatform.core.connections import RedisRole
from msgplatform.core.flows.messages import BY_ID, Source, ordered
from msgplatform.messages import engine
from tests.letters.models import Letter

DELIVERED = flows.Metric("letters_delivered", "Letters that were delivered")


def _status() -> flows.Status:
    delivered = Letter.objects.filter(delivered=True).count()
    return flows.Status(
        Letter.objects.filter(delivered=False).count(), None, {"delivered": delivered}
    )


def _page(id: str, _after: str = "") -> flows.Page | None:
    row = Letter.objects.filter(pk=id).first() if id.isdecimal() else None
    if row is None:
        return None
    entry = flows.TimelineEntry(row.created_at, "Posted", "accepted")
    return flows.Page(str(row.pk), f"Letter {row.pk}", {"system": row.biz.name}, row.text, [entry])


def _count(filter: Mapping[str, Any]) -> flows.Counted:
    return flows.Counted(_delivered(filter).count())


def _step(
    filter: Mapping[str, Any], _cursor: str, limit: int, _note: flows.Note = flows.unnoted
) -> flows.Step:
    pks = list(_delivered(filter).values_list("pk", flat=True)[:limit])
    return flows.Step("", Letter.objects.filter(pk__in=pks).delete()[0])


def _delivered(filter: Mapping[str, Any]) -> Any:
    values = engine.read_filter({"text": FIELDS["text"]}, filter)
    return Letter.objects.filter(text__contains=values.get("text", ""), delivered=True)


def run_demo(run: flows.DemoRun) -> Mapping[str, Any]:
    from msgplatform.api.access import keys
    from msgplatform.models import Biz

    biz = Biz.objects.create(name="writers")
    _key, plain = keys.create(biz, "demo", ["letters:write"])
    accepted = 0
    for number in range(20):
        request = urllib.request.Request(
            f"{run.base_url}/api/v1/letters",
            json.dumps({"text": f"{settings.LETTERS_STAMP} {number}"}).encode(),
            {"Authorization": f"Bearer {plain}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            accepted += answer.status == 201
    deadline = time.monotonic() + run.timeout
    while Letter.objects.filter(delivered=False).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    delivered = Letter.objects.filter(delivered=True).count()
    return {
        "accepted": accepted,
        "delivered": delivered,
        "lost": accepted - delivered,
        "at_least": 20,
    }


def _lines(ids: Sequence[int]) -> dict[int, flows.Hit]:
    rows = Letter.objects.filter(pk__in=ids).select_related("biz")
    return {
        row.pk: flows.Hit(
            str(row.pk),
            row.text,
            "delivered" if row.delivered else "posted",
            row.created_at,
            row.biz.name,
        )
        for row in rows
    }


FIELDS: flows.Fields = {
    "id": filter_fields.message_id("A letter's id"),
    "biz": filter_fields.BIZ,
    "text": flows.FilterField("Text", "A word of it"),
}
LETTERS = Source(
    rows=Letter.objects.all,
    lines=_lines,
    indexes=[BY_ID, ordered("biz")],
    conditions={"id": "id", "biz": "biz_id", "text": lambda text: Q(text__contains=text)},
)
MESSAGES = flows.MessageStore(
    fields=FIELDS,
    sources=lambda _values: [LETTERS],
    readings=lambda query, _personal: [*engine.exact_id(query), {"text": query}],
    page=_page,
)
FLOW = flows.Flow(
    name="letters",
    title="Letters",
    daemons=(flows.Daemon("run_postman", help="delivers"),),
    urls="tests.letters.urls",
    permission="letters.view_letter",
    bulk_permission="letters.change_letter",
    scopes={"letters:read": "read letters", "letters:write": "post letters"},
    messages=MESSAGES,
    actions={
        "return": flows.BulkAction(
            title="Return to the sender", fields={"text": FIELDS["text"]}, count=_count, step=_step
        )
    },
    health=flows.Health(
        read_status=_status,
        examine=lambda: [flows.Finding("ok", f"a stamp is {settings.LETTERS_STAMP}")],
        metrics=lambda: [DELIVERED.of(Letter.objects.filter(delivered=True).count())],
        declared_metrics=(DELIVERED,),
    ),
    setup=flows.Setup(
        demo="tests.letters.flow.run_demo",
        demo_environment=lambda: {"LETTERS_STAMP": "nothing in the demo"},
        environment_prefix="LETTERS_",
    ),
    redis=(RedisRole("letters", "LETTERS_REDIS_URL", is_truth=True),),
    queues=("letters-express",),
    queue_pattern=r"letters-\d+",
    icons={"Letter": "stylus_note"},
)
