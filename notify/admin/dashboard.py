"""The card above one subscription's settings: its state now, the last day, its failures."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _

from msgplatform.doors.admin import cells
from msgplatform.doors.admin.chart import Chart, Line, labels
from msgplatform.monitor.statistics.points import CounterQuery, Point
from notify.admin import health, subscription_cells
from notify.models import Attempt, BizReceive, ReceiveMsg
from notify.monitor.activity import ACTIVITY
from notify.monitor.counters import FILTERED
from notify.monitor.metrics import NOT_DELIVERED

_Delivery = ReceiveMsg.Status
# Lines in the card: enough to see the fault, the list has the rest.
FAILURES = 8
_STATES = NOT_DELIVERED


def card(row: BizReceive) -> dict[str, Any]:
    """The context of the template `notify/subscription_card.html`."""
    now = timezone.now()
    state = health.read([row])[row.pk]
    # 24 steps, the hour that has just begun included.
    of_row = {"subscription": str(row.pk)}
    points = CounterQuery(ACTIVITY, "hour", now - timedelta(hours=23), now, of_row).series()
    disabled_on = health.disabled_on(row)
    filtered = sum(point.counts.get(FILTERED, 0) for point in points)
    return {
        "status": subscription_cells.status(row, state, health.why(row)),
        "is_sending": row.status in (BizReceive.Status.NORMAL, BizReceive.Status.SKIPPING),
        "is_discarded": row.status == BizReceive.Status.DISCARDED,
        "is_paused": row.status == BizReceive.Status.PAUSED,
        "figures": [
            (_("waiting"), subscription_cells.waiting(state)),
            (_("oldest due"), subscription_cells.due(state)),
            (_("in flight"), subscription_cells.in_flight(row, state)),
            (_("breaker"), subscription_cells.breaker(state)),
            (_("success, last hour"), subscription_cells.success(state)),
            (_("failures"), subscription_cells.failures(state)),
            *([(_("filtered, 24 hours"), str(filtered))] if row.filter or filtered else []),
        ],
        "deliveries": _deliveries(row),
        "chart": _chart(points),
        "delivered": sum(point.counts.get("delivered", 0) for point in points),
        "failed": sum(point.counts.get("failed", 0) for point in points),
        "failures": _failures(row),
        "is_failing": health.is_failing(row),
        "failing_since": cells.moment(row.failing_since) if row.failing_since else "",
        "disabled_on": cells.moment(disabled_on) if disabled_on else "",
    }


def _chart(points: list[Point]) -> Chart:
    """Attempts in each hour: a bar for those that failed."""
    successes: list[float | None] = [point.counts.get("delivered", 0) for point in points]
    failures: list[float | None] = [point.counts.get("failed", 0) or None for point in points]
    lines = [
        Line(_("delivered"), successes, "good"),
        Line(_("failed attempts"), failures, "lost", as_bars=True),
    ]
    times = labels([point.at for point in points])
    return Chart("attempts", _("Attempts per hour"), times, lines, last_is_open=True)


def _deliveries(row: BizReceive) -> list[dict[str, Any]]:
    """The numbers of deliveries that wait or failed, each with the list that shows them."""
    deliveries = []
    for status in _STATES:
        # Without an order, and cut: a part of the index, however many there are.
        rows = ReceiveMsg.objects.filter(status=status, biz_receive_id=row.pk).order_by()
        count = rows[: health.COUNTED + 1].count()
        if count:
            text = f"{health.COUNTED}+" if count > health.COUNTED else str(count)
            deliveries.append({"name": status.name.lower(), "label": status.label, "count": text})
    return deliveries


def _failures(row: BizReceive) -> list[Attempt]:
    """The last failed attempts of deliveries that did not succeed, the latest first.

    Read by the index (status, subscription, next_at): a delivery that waits longest for its next
    attempt has failed most recently, or most often. Among the held ones it may be the first, too,
    since those that were made later were never tried.
    """
    ids: list[int] = []
    for status, order in (
        (_Delivery.PENDING, "-next_at"), (_Delivery.EXHAUSTED, "-next_at"),
        (_Delivery.HELD, "-next_at"), (_Delivery.HELD, "next_at"),
    ):  # fmt: skip
        rows = ReceiveMsg.objects.filter(status=status, biz_receive_id=row.pk)
        # More deliveries than are shown: some of them have no failed attempt yet.
        ids += rows.order_by(order).values_list("id", flat=True)[: FAILURES * 4]
    last: dict[int, Attempt] = {}
    for attempt in Attempt.objects.filter(copy_id__in=ids).order_by("id").select_related("copy"):
        if not 200 <= attempt.http_status < 300:
            last[attempt.copy_id] = attempt
    return sorted(last.values(), key=lambda attempt: attempt.at, reverse=True)[:FAILURES]
