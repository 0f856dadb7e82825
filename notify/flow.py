"""Notify, as the platform sees it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.db.models import Count, Min
from django.utils import timezone
from django.utils.translation import gettext as _

from msgplatform.core import flows, queue_names, queues
from msgplatform.core.connections import RedisError
from msgplatform.core.daemon import AWAY
from notify import counters, requeue, search
from notify.models import BizMsg, ReceiveMsg

_Status = ReceiveMsg.Status
_OPEN = (_Status.PENDING, _Status.QUEUED, _Status.HELD)
# What is counted live: never the delivered, whose number only grows until they are archived.
_COUNTED = (*_OPEN, _Status.EXHAUSTED, _Status.POISON)


class NotifyFlow(flows.Flow):
    name = "notify"
    title = "Notify"
    # The one with the highest priority stops first: what is in hand drains towards the marker.
    daemons = (
        flows.Daemon("run_marker", priority=510, help="writes back what became of each copy"),
        flows.Daemon("run_sender", priority=520, help="delivers"),
        flows.Daemon("run_maker", priority=530, help="splits and queues"),
    )
    urls = "notify.urls"
    permission = "notify.view_bizmsg"
    scopes = {
        "events:write": "publish events",
        "events:read": "read events and what became of them",
    }
    filters = requeue.FILTERS

    def status(self) -> flows.Status:
        try:
            return _status()
        except AWAY as error:
            return flows.Status(0, None, problem=str(error)[:200])

    def search(self, query: str, limit: int) -> list[flows.Hit]:
        return search.search(query, limit)

    def page(self, id: str) -> flows.Page | None:
        return search.page(id)

    def requeue_count(self, filter: Mapping[str, Any]) -> int:
        return requeue.matching(filter).count()

    def requeue(self, filter: Mapping[str, Any], cursor: str, limit: int) -> flows.Requeued:
        return requeue.requeue(filter, cursor, limit)

    def metrics(self) -> Iterable[flows.Sample]:
        counts = _counts()
        for status in _COUNTED:
            yield flows.Sample(
                "notify_copies",
                counts.get(status, 0),
                {"status": status.name.lower()},
                "Copies that are not delivered, by status",
            )
        yield flows.Sample("notify_to_split", _to_split(), help="Messages not yet split")
        yield flows.Sample(
            "notify_oldest_seconds", _oldest_seconds() or 0.0, help="Age of the oldest due copy"
        )
        try:
            depth = queues.depths([queue_names.NOTIFY_MARKER])[queue_names.NOTIFY_MARKER]
        except RedisError:
            return
        yield flows.Sample("notify_marker_orders", depth, help="Result batches to be marked")

    def demo(self, run: flows.DemoRun) -> Mapping[str, Any]:
        from notify.demo.run import run_demo

        return run_demo(run)


def _status() -> flows.Status:
    counts = _counts()
    backlog = _to_split() + sum(counts.get(status, 0) for status in _OPEN)
    facts: dict[str, int | float | str] = {
        str(status.label): counts[status] for status in _COUNTED if counts.get(status)
    }
    facts[_("delivered in the last hour")] = counters.last_hour("delivered")
    return flows.Status(backlog, _oldest_seconds(), facts)


def _counts() -> dict[int, int]:
    """Copies per status: one pass over the part of the index that holds what is not delivered."""
    rows = (
        ReceiveMsg.objects.filter(status__in=_COUNTED)
        .order_by()
        .values_list("status")
        .annotate(Count("id"))
    )
    return dict(rows)


def _to_split() -> int:
    return BizMsg.objects.filter(state=BizMsg.State.ACCEPTED).count()


def _oldest_seconds() -> float | None:
    """How long the longest-waiting due copy has been due; None when nothing is due."""
    now = timezone.now()
    due = ReceiveMsg.objects.filter(status=_Status.PENDING, next_at__lte=now)
    oldest = due.aggregate(oldest=Min("next_at"))["oldest"]
    return (now - oldest).total_seconds() if oldest else None
