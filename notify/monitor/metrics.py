"""How Notify stands right now: counts and ages of bounded cost, for `/metrics` and the overview.

Counts stop at COUNTED: exhausted deliveries pile up until somebody requeues them, and an answer
must not take longer each day. The oldest delivery of each subscription is one index dive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import OuterRef, QuerySet, Subquery
from django.utils.translation import gettext as _

from msgplatform.core.connections import RedisError
from msgplatform.core.data import sql
from msgplatform.core.flows import Sample, Wait
from msgplatform.core.queues import jobs
from msgplatform.core.rates.breaker import State
from notify import lane_status, orders
from notify.models import BizMsg, BizReceive, ReceiveMsg
from notify.monitor import counters
from notify.subscriptions import limits

COUNTED = 100_000
# Subscriptions that one metric names, the worst ones: each is a time series in Prometheus.
NAMED = 50

_Delivery, _Status = ReceiveMsg.Status, BizReceive.Status
OPEN = (_Delivery.PENDING, _Delivery.QUEUED, _Delivery.HELD)
# Never those that succeeded: their number only grows until they are archived.
NOT_DELIVERED = (*OPEN, _Delivery.EXHAUSTED, _Delivery.POISON)
_BREAKER = {State.CLOSED: 0, State.HALF_OPEN: 1, State.OPEN: 2}
_UP_TO = f"counted up to {COUNTED:,}"


def deliveries() -> dict[int, int]:
    """Deliveries that did not succeed, or not yet, by status; each counted up to COUNTED."""
    return {
        status: _counted(ReceiveMsg.objects.filter(status=status), "status")
        for status in NOT_DELIVERED
    }


def to_split() -> int:
    """Messages that are accepted and not yet split, counted up to COUNTED."""
    return _counted(BizMsg.objects.filter(state=BizMsg.State.ACCEPTED), "state")


def _counted(rows: QuerySet[Any], column: str) -> int:
    # A column of the index: on SQLite the key is not in it, and would be looked up in the table.
    return rows.order_by().values(column)[:COUNTED].count()


class Waiting(NamedTuple):
    """A subscription, with what its oldest deliveries wait for."""

    row: BizReceive
    pending: datetime | None  # when its oldest pending delivery is, or was, due
    queued: datetime | None  # when the first lease of its queued deliveries ends, or ended

    @property
    def labels(self) -> dict[str, str]:
        row = self.row
        return {"subscription": str(row.pk), "biz": row.biz.name, "consumer": row.receive.name}


def waiting() -> list[Waiting]:
    """Every subscription. What an operator paused, or the platform disabled, waits for nothing."""
    rows = BizReceive.objects.select_related("biz", "receive").only(
        "status", "failing_since", "failures", "biz__name", "receive__name"
    )
    found = rows.annotate(pending=_oldest(_Delivery.PENDING), queued=_oldest(_Delivery.QUEUED))
    sendable = (_Status.NORMAL, _Status.SKIPPING)
    return [
        Waiting(row, row.pending if row.status in sendable else None, row.queued)
        for row in found.order_by("id")
    ]


def _oldest(status: int) -> Subquery:
    of_one = ReceiveMsg.objects.filter(status=status, biz_receive=OuterRef("pk"))
    return Subquery(of_one.order_by("next_at").values("next_at")[:1])


def oldest_seconds(rows: Iterable[Waiting], now: datetime) -> float | None:
    """For how long the oldest due delivery, or message that is not split, has waited; None when
    nothing is due."""
    ages = [age for age, _which in _due(rows, now)]
    if since := _unsplit_since():
        ages.append(max(0.0, (now - since).total_seconds()))
    return max(ages, default=None)


def waits() -> Iterator[Wait]:
    """The oldest due delivery, without subscriptions whose failing has an alert of its own; and the
    oldest message that is not split."""
    now, after = sql.now(), limits.failing_alert_after()
    for _age, wait in _due(waiting(), now):
        since = wait.row.failing_since
        if wait.pending and not (after and since and since <= now - after):
            text = _("A delivery for %(biz)s → %(consumer)s")
            yield Wait("deliveries", text % wait.labels, wait.pending)
            break
    if accepted_at := _unsplit_since():
        yield Wait("messages", _("A message that was accepted"), accepted_at)


def _unsplit_since() -> datetime | None:
    """When the oldest message was accepted that is not yet split; one index dive."""
    accepted = BizMsg.objects.filter(state=BizMsg.State.ACCEPTED).order_by("state", "id")
    return accepted.values_list("created_at", flat=True).first()


def _due(rows: Iterable[Waiting], now: datetime) -> list[tuple[float, Waiting]]:
    """(seconds overdue, which), the longest first."""
    due = [((now - w.pending).total_seconds(), w) for w in rows if w.pending and w.pending <= now]
    return sorted(due, key=lambda pair: pair[0], reverse=True)


# -- /metrics ------------------------------------------------------------------------------------
def samples() -> Iterator[Sample]:
    """Everything that `/metrics` says about Notify."""
    now = sql.now()
    rows = waiting()
    for status, count in deliveries().items():
        yield Sample(
            "notify_copies", count, {"status": _Delivery(status).name.lower()},
            f"Deliveries that did not succeed, or not yet, by status; {_UP_TO}",
        )  # fmt: skip
    yield Sample("notify_to_split", to_split(), help=f"Messages not yet split; {_UP_TO}")
    yield from _of_subscriptions(rows, now)
    try:
        depth = jobs.depths([orders.MARKER_QUEUE])[orders.MARKER_QUEUE]
        yield Sample("notify_marker_orders", depth, help="Result batches to be marked")
        oldest = jobs.oldest_seconds(orders.MARKER_QUEUE)
        yield Sample("notify_marker_oldest_seconds", oldest, help="Age of the oldest result batch")
        yield from _lanes({wait.row.pk: wait.labels for wait in rows})
        yield from _totals(counters.totals())
    except RedisError:
        return  # what the database said is not withheld for that


def _of_subscriptions(rows: list[Waiting], now: datetime) -> Iterator[Sample]:
    yield Sample(
        "notify_oldest_seconds", oldest_seconds(rows, now) or 0.0,
        help="Age of the oldest due delivery, or of the oldest message that is not yet split",
    )  # fmt: skip
    expired = [(now - wait.queued).total_seconds() for wait in rows if wait.queued]
    yield Sample(
        "notify_expired_lease_seconds", max(0.0, *expired, 0.0),
        help="Since when the oldest expired lease waits to be queued again",
    )  # fmt: skip
    for age, wait in _due(rows, now)[:NAMED]:
        yield Sample(
            "notify_subscription_oldest_seconds", age, wait.labels,
            f"Age of a subscription's oldest due delivery; the {NAMED} oldest",
        )  # fmt: skip

    for status in _Status:
        number = sum(wait.row.status == status for wait in rows)
        yield Sample(
            "notify_subscriptions", number, {"status": status.name.lower()},
            "Subscriptions by status",
        )  # fmt: skip
    failing = [(wait.row.failing_since, wait) for wait in rows if wait.row.failing_since]
    for since, wait in sorted(failing, key=lambda pair: pair[0])[:NAMED]:
        yield Sample(
            "notify_subscription_failing_seconds", max(0.0, (now - since).total_seconds()),
            wait.labels, f"Since a subscription's last success; the {NAMED} longest",
        )  # fmt: skip


def _lanes(labels: dict[int, dict[str, str]]) -> Iterator[Sample]:
    """What senders report about the subscriptions that they work on; idle ones are left out."""
    busy = [
        (labels[pk], state)
        for pk, state in lane_status.read().items()
        if pk in labels and (state.is_open or state.in_flight or state.waiting)
    ]
    # A metric at a time: Prometheus wants the lines of each together.
    for which, state in busy:
        yield Sample(
            "notify_subscription_breaker", _BREAKER[state.breaker], which,
            "0 closed, 1 half-open (probing), 2 open",
        )  # fmt: skip
    for which, state in busy:
        yield Sample(
            "notify_subscription_in_flight", state.in_flight, which, "Requests without an answer"
        )
    for which, state in busy:
        yield Sample(
            "notify_subscription_waiting", state.waiting, which, "Deliveries in a sender's hand"
        )


def _totals(totals: dict[str, float]) -> Iterator[Sample]:
    """What was counted since the work Redis was flushed: for rate() and histogram_quantile()."""
    for outcome in ("delivered", "failed"):
        yield Sample(
            "notify_attempts", totals.get(outcome, 0), {"outcome": outcome},
            "Requests to consumers", "counter",
        )  # fmt: skip
    yield Sample(
        "notify_exhausted", totals.get("exhausted", 0), help="Deliveries given up", kind="counter"
    )
    for name, histogram, text in (
        ("notify_delivery_seconds", counters.LATENCY, "From acceptance to delivery"),
        ("notify_request_seconds", counters.DURATION, "One request to a consumer"),
    ):
        for bound, count in histogram.cumulative(totals):
            yield Sample(name, count, {"le": bound}, text, "histogram")
        yield Sample(name, totals.get(f"{histogram.name}_seconds", 0.0), {}, text, "histogram")
