"""Letters, as the platform sees them."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterable, Mapping
from typing import Any

from django.conf import settings

from msgplatform.core import flows
from msgplatform.core.connections import RedisRole
from msgplatform.core.errors import InvalidInput
from tests.letters.models import Letter

DELIVERED = flows.Metric("letters_delivered", "Letters that were delivered")


class LettersFlow(flows.Flow):
    name = "letters"
    title = "Letters"
    daemons = (flows.Daemon("run_postman", help="delivers"),)
    urls = "tests.letters.urls"
    permission = "letters.view_letter"
    bulk_permission = "letters.change_letter"
    scopes = {"letters:read": "read letters", "letters:write": "post letters"}
    search_fields = {"text": "A word of it"}
    bulk_actions = {"return": flows.BulkAction("Return to the sender", {"text": "A word of it"})}
    redis = (RedisRole("letters", "LETTERS_REDIS_URL", is_truth=True),)
    queues = ("letters-express",)
    queue_pattern = r"letters-\d+"
    icons = {"Letter": "stylus_note"}
    environment_prefix = "LETTERS_"
    declared_metrics = (DELIVERED,)

    def status(self) -> flows.Status:
        try:
            return flows.Status(
                Letter.objects.filter(delivered=False).count(),
                None,
                {"delivered": Letter.objects.filter(delivered=True).count()},
            )
        except Exception as error:  # the contract: it does not raise
            return flows.Status(0, None, problem=str(error))

    def search(self, query: str, limit: int, personal: bool = True) -> list[flows.Hit]:
        return [_hit(row) for row in Letter.objects.filter(text=query)[:limit]] if query else []

    def find(self, filter: Mapping[str, str], cursor: str, limit: int) -> flows.Found:
        rows = _chosen(filter)
        return flows.Found([_hit(row) for row in rows[:limit]])

    def page(self, id: str, after: str = "") -> flows.Page | None:
        row = Letter.objects.filter(pk=id).first() if id.isdecimal() else None
        if row is None:
            return None
        entry = flows.TimelineEntry(row.created_at, "Posted", "accepted")
        return flows.Page(
            str(row.pk), f"Letter {row.pk}", {"system": row.biz.name}, row.text, [entry]
        )

    def bulk_count(self, action: str, filter: Mapping[str, Any]) -> flows.Counted:
        return flows.Counted(_chosen(filter).filter(delivered=True).count())

    def bulk_step(
        self,
        action: str,
        filter: Mapping[str, Any],
        cursor: str,
        limit: int,
        note: flows.Note = flows.unnoted,
    ) -> flows.Step:
        pks = _chosen(filter).filter(delivered=True).values_list("pk", flat=True)[:limit]
        return flows.Step("", Letter.objects.filter(pk__in=list(pks)).delete()[0])

    def metrics(self) -> Iterable[flows.Sample]:
        yield DELIVERED.of(Letter.objects.filter(delivered=True).count())

    def examine(self) -> Iterable[flows.Finding]:
        yield flows.Finding("ok", f"a stamp is {settings.LETTERS_STAMP}")

    def demo_environment(self) -> Mapping[str, str]:
        return {"LETTERS_STAMP": "nothing in the demo"}

    def demo(self, run: flows.DemoRun) -> Mapping[str, Any]:
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


def _chosen(filter: Mapping[str, Any]) -> Any:
    if unknown := set(filter) - {"text"}:
        raise InvalidInput("there is no such field", min(unknown))
    return Letter.objects.filter(text__contains=filter.get("text", ""))


def _hit(row: Letter) -> flows.Hit:
    state = "delivered" if row.delivered else "posted"
    return flows.Hit(str(row.pk), row.text, state, row.created_at, row.biz.name)
