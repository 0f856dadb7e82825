"""Notify, as the platform sees it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop

from msgplatform.core import flows
from msgplatform.core.alerts import Condition
from msgplatform.core.archive import retention
from msgplatform.core.data import sql
from msgplatform.core.errors import UNAVAILABLE
from notify import orders
from notify.actions import actions, one_message, preview
from notify.archive.retention import ARCHIVE
from notify.messages import find as search
from notify.models import BizReceive, ReceiveMsg
from notify.monitor import conditions, failures, findings, first_steps, metrics, runbooks
from notify.monitor.activity import ACTIVITY
from notify.subscriptions import snippets

_Status = ReceiveMsg.Status
# A request in flight is waited for: one that is cut off would be delivered twice.
_SENDER = flows.Daemon("run_sender", priority=520, stop_seconds=75, help="delivers")


class NotifyFlow(flows.Flow):
    name = "notify"
    title = gettext_lazy("Notify")
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
    operate = ("notify.change_receivemsg", "notify.operate_bizreceive")
    again_permission = "notify.change_receivemsg"
    scopes = {
        "events:write": gettext_noop("publish events"),
        "events:read": gettext_noop("read events and what became of them"),
    }
    management_scopes = {
        "manage:consumers": gettext_noop("set up consumers: where messages go"),
        "manage:subscriptions": gettext_noop("set up subscriptions: who gets what"),
        "manage:event-types": gettext_noop("describe event types in the catalogue"),
    }
    scope_permissions = {
        "events:write": ("notify.add_bizmsg",),
        "manage:consumers": ("notify.add_receive", "notify.change_receive",
                             "notify.delete_receive"),
        "manage:subscriptions": ("notify.add_bizreceive", "notify.change_bizreceive",
                                 "notify.delete_bizreceive"),
        "manage:event-types": ("notify.add_eventtype", "notify.change_eventtype",
                               "notify.delete_eventtype"),
    }  # fmt: skip
    search_fields = search.FIELDS
    texts = gettext_lazy("payloads and answers")
    bulk_actions = {name: action.shown for name, action in actions.ACTIONS.items()}

    queues = (orders.MARKER_QUEUE,)
    # A result on the marker's queue is the only copy of an answer: it is never dropped.
    only_copies = frozenset(queues)
    queue_pattern = orders.QUEUE_PATTERN
    icons = {
        "Receive": "outbound",
        "BizReceive": "hub",
        "EventType": "menu_book",
        "BizMsg": "mail",
        "ReceiveMsg": "send",
    }
    activity = ACTIVITY
    runbooks = runbooks.RUNBOOKS
    watched_alerts = conditions.KINDS
    environment_prefix = "NOTIFY_"
    declared_metrics = (*metrics.METRICS, retention.metric(ARCHIVE))

    def status(self) -> flows.Status:
        try:
            counts = metrics.counts()
            backlog = counts[None] + sum(counts[status] for status in metrics.OPEN)
            facts: dict[str, int | float | str] = {}
            for status in metrics.OPEN:
                count = counts[status]
                if count >= metrics.COUNTED:  # then the backlog is more than it says
                    facts[str(_Status(status).label)] = _("%d or more") % count
                elif count and status == _Status.HELD:
                    facts[str(_Status.HELD.label)] = count
            rows, now = metrics.waiting(), sql.now()
            oldest, ages = metrics.oldest_seconds(rows, now), metrics.oldest_by(rows, now)
            return flows.Status(backlog, oldest, facts, oldest_by=ages)
        except UNAVAILABLE as error:
            return flows.Status(0, None, problem=str(error)[:200])

    def waits(self) -> Iterable[flows.Wait]:
        return metrics.waits()

    def conditions(self) -> Iterable[Condition]:
        return conditions.conditions()

    def failures(self) -> Sequence[flows.Failure]:
        return failures.failures()

    def search(self, query: str, limit: int, personal: bool = True) -> list[flows.Hit]:
        return search.search(query, limit)

    def search_text(
        self, query: str, since: datetime, cursor: str, seconds: float
    ) -> flows.TextFound:
        return search.search_text(query, since, cursor, seconds)

    def page(self, id: str, after: str = "") -> flows.Page | None:
        return search.page(id, after)

    def send_again(self, id: str, recipient: str, by: str) -> flows.SentAgain:
        return one_message.send_again(id, recipient)

    def file(self, id: str) -> flows.File | None:
        return search.file(id)

    def find(self, filter: Mapping[str, str], cursor: str, limit: int) -> flows.Found:
        return search.find(filter, cursor, limit)

    def notice(self) -> str:
        return search.notice()

    def bulk_count(self, action: str, filter: Mapping[str, Any]) -> flows.Counted:
        return actions.count(action, filter)

    def bulk_preview(self, action: str, filter: Mapping[str, Any]) -> flows.Preview:
        return actions.shown_before(action, filter)

    def bulk_step(
        self,
        action: str,
        filter: Mapping[str, Any],
        cursor: str,
        limit: int,
        note: flows.Note = flows.unnoted,
    ) -> flows.Step:
        return actions.step(action, filter, cursor, limit, note)

    def bulk_outcome(self, action: str, ids: Sequence[str]) -> dict[str, flows.Ending]:
        return preview.outcome(ids)

    def bulk_hits(self, action: str, ids: Sequence[str]) -> list[flows.Hit]:
        return preview.found(ids)

    def examine(self) -> Iterable[flows.Finding]:
        return findings.examine()

    def metrics(self) -> Iterable[flows.Sample]:
        return [*metrics.samples(), *retention.samples(ARCHIVE)]

    def own_processes(self) -> list[flows.Daemon]:
        wanted = BizReceive.objects.filter(own_process=True)
        wanted = wanted.exclude(status=BizReceive.Status.DISCARDED).order_by("id")
        return [
            replace(_SENDER, arguments=(f"--subscription={pk}",))
            for pk in wanted.values_list("id", flat=True)
        ]

    def first_steps(self) -> Sequence[flows.FirstStep]:
        return first_steps.steps()

    def first_calls(self) -> Sequence[flows.FirstCall]:
        return [first_steps.CALL]

    def snippets(self) -> Sequence[flows.Snippet]:
        return snippets.snippets()

    def demo_environment(self) -> Mapping[str, str]:
        # A subscriber that does not answer is noticed within the time that a demo takes, and what
        # waits for one that never answers is given up in it.
        return {"NOTIFY_BREAKER_SECONDS": "4", "NOTIFY_BREAKER_KEEP_HOURS": "0"}

    def demo(self, run: flows.DemoRun) -> Mapping[str, Any]:
        from notify.demo.run import run_demo

        return run_demo(run)
