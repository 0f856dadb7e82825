"""Notify, as the platform sees it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from django.utils.translation import gettext as _

from msgplatform.core import flows
from msgplatform.core.archive import retention
from msgplatform.core.data import sql
from msgplatform.core.errors import UNAVAILABLE
from notify import orders
from notify.archive.retention import ARCHIVE
from notify.bulk import actions
from notify.models import BizReceive, ReceiveMsg
from notify.monitor import counters, metrics
from notify.search import find as search

_Status = ReceiveMsg.Status
# A request in flight is waited for: one that is cut off would be delivered twice.
_SENDER = flows.Daemon("run_sender", priority=520, stop_seconds=75, help="delivers")


class NotifyFlow(flows.Flow):
    name = "notify"
    title = "Notify"
    # The one with the highest priority stops first: what is in hand drains towards the marker.
    daemons = (
        flows.Daemon("run_marker", priority=510, help="writes back what became of each delivery"),
        _SENDER,
        flows.Daemon("run_maker", priority=530, help="splits and queues"),
        flows.Daemon("run_archiver", priority=540, help="moves final messages to the archive"),
    )
    urls = "notify.urls"
    single_intakes = ("notify.api.views.PUBLISH",)
    permission = "notify.view_bizmsg"
    scopes = {
        "events:write": "publish events",
        "events:read": "read events and what became of them",
    }
    search_fields = search.FIELDS
    bulk_actions = {name: action.shown for name, action in actions.ACTIONS.items()}

    queues = (orders.MARKER_QUEUE,)
    # A result on the marker's queue is the only copy of an answer: it is never dropped.
    only_copies = frozenset(queues)
    queue_pattern = orders.QUEUE_PATTERN
    icons = {"Receive": "outbound", "BizReceive": "hub", "BizMsg": "mail", "ReceiveMsg": "send"}
    environment_prefix = "NOTIFY_"

    def status(self) -> flows.Status:
        try:
            counts = metrics.deliveries()
            backlog = metrics.to_split() + sum(counts[status] for status in metrics.OPEN)
            facts: dict[str, int | float | str] = {}
            for status, count in counts.items():
                if count:
                    shown = count if count < metrics.COUNTED else _("%d or more") % count
                    facts[str(_Status(status).label)] = shown
            facts[_("delivered in the last hour")] = counters.last_hour("delivered")
            oldest = metrics.oldest_seconds(metrics.waiting(), sql.now())
            return flows.Status(backlog, oldest, facts)
        except UNAVAILABLE as error:
            return flows.Status(0, None, problem=str(error)[:200])

    def waits(self) -> Iterable[flows.Wait]:
        return metrics.waits()

    def search(self, query: str, limit: int) -> list[flows.Hit]:
        return search.search(query, limit)

    def page(self, id: str) -> flows.Page | None:
        return search.page(id)

    def file(self, id: str) -> flows.File | None:
        return search.file(id)

    def find(self, filter: Mapping[str, str], cursor: str, limit: int) -> flows.Found:
        return search.find(filter, cursor, limit)

    def notice(self) -> str:
        return search.notice()

    def bulk_count(self, action: str, filter: Mapping[str, Any]) -> flows.Counted:
        return actions.count(action, filter)

    def bulk_step(
        self, action: str, filter: Mapping[str, Any], cursor: str, limit: int
    ) -> flows.Step:
        return actions.step(action, filter, cursor, limit)

    def metrics(self) -> Iterable[flows.Sample]:
        return [*metrics.samples(), *retention.samples(ARCHIVE)]

    def own_processes(self) -> list[flows.Daemon]:
        wanted = BizReceive.objects.filter(own_process=True)
        wanted = wanted.exclude(status=BizReceive.Status.DISCARDED).order_by("id")
        return [
            replace(_SENDER, arguments=(f"--subscription={pk}",))
            for pk in wanted.values_list("id", flat=True)
        ]

    def demo_environment(self) -> Mapping[str, str]:
        # A subscriber that does not answer is noticed within the time that a demo takes.
        return {"NOTIFY_BREAKER_SECONDS": "4"}

    def demo(self, run: flows.DemoRun) -> Mapping[str, Any]:
        from notify.demo.run import run_demo

        return run_demo(run)
