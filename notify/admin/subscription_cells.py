"""Cells of the subscriptions' list, and the card above a subscription's settings: its state, the
last day, its failures."""

from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.urls import reverse
from django.utils import formats, timezone
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy as _

from msgplatform.core.data.counting import count_up_to
from msgplatform.core.durations import age
from msgplatform.doors.admin.cells import NOTHING, link, mark, moment, nothing, percent
from msgplatform.doors.admin.chart import Chart, Line, labels
from msgplatform.monitor.statistics.points import CounterQuery
from notify.admin.health import MAX_COUNTED, Busy, Health, disabled_on, is_failing, read
from notify.directory import waits
from notify.messages.states import answer, local
from notify.models import Attempt, BizReceive, ReceiveMsg
from notify.monitor.activity import ACTIVITY
from notify.monitor.counters import FILTERED
from notify.monitor.metrics import NOT_DELIVERED
from notify.subscriptions import limits

_Status = BizReceive.Status
# Tone and short name of a status that says all; the long name is the cell's tooltip.
_STATES = {
    _Status.PAUSED: ("warn", _("paused")),
    _Status.SKIPPING: ("warn", _("skipping held")),
    _Status.DISCARDED: ("plain", _("discarded")),
    _Status.DISABLED: ("bad", _("disabled")),
}
# The share of accepted attempts below which the number is marked.
_POOR = 0.95


# Each cell takes a row with its `health`.
@admin.display(description=_("state"))
def state(row: Any) -> SafeString:
    """The subscription's status, or the state of its deliveries while the status is normal."""
    health: Health = row.health
    set_to = _STATES.get(_Status(row.status))
    if set_to:
        below = ""
        if row.status == _Status.DISABLED:
            below = row.why_disabled or gettext("disabled by the platform")
        return mark(str(set_to[1]), set_to[0], str(_Status(row.status).label), below=below)
    if row.receive.is_listened and health.waiting:
        return mark(gettext("waits for a listener"), "plain")
    if is_failing(row) or (health.lane and health.lane.is_open):
        return mark(gettext("failing"), "bad")
    if row.failing_since:
        return mark(gettext("retrying"), "warn")
    if health.busy:
        return mark(gettext("busy"), "warn", below=busy(row, health.busy))
    if health.waiting or health.delivered:
        return mark(gettext("delivering"), "good")
    return mark(gettext("idle"), "plain", gettext("Nothing waits, nothing was sent lately."))


def busy(row: BizReceive, state: Busy) -> str:
    """A sentence: since when deliveries wait for a slot, the rate, and the time that is left."""
    numbers = {
        "open": state.in_flight,
        "limit": row.in_flight_limit,
        "since": formats.date_format(state.since, "H:i"),
        "rate": f"{state.per_minute:.0f}" if state.per_minute >= 1 else f"{state.per_minute:.1f}",
        "left": age(state.left_seconds),
    }
    if state.left_seconds is None:
        text = gettext("%(open)d of %(limit)d slots, busy since %(since)s, %(rate)s a minute")
    else:
        text = gettext(
            "%(open)d of %(limit)d slots, busy since %(since)s, %(rate)s a minute, about %(left)s "
            "left"
        )
    return text % numbers


@admin.display(description=_("failures"))
def failed_deliveries(row: Any) -> str:
    """The number of failures, linked to the page Failures."""
    health: Health = row.health
    if not health.failures:
        return NOTHING
    return link(reverse("console:failures"), f"{health.failures:,}")


@admin.display(description=_("breaker"))
def breaker(row: Any) -> str:
    health: Health = row.health
    if not health.is_known:
        return gettext("unknown")
    if health.lane is None or not health.lane.is_open:
        return NOTHING if health.lane is None else nothing(gettext("closed"))
    probe = formats.date_format(timezone.localtime(health.probe_at), "H:i:s")
    return mark(gettext("open, probe %s") % probe, "bad")


@admin.display(description=_("last hour"))
def success(row: Any) -> str:
    health: Health = row.health
    if health.rate is None:
        return NOTHING
    title = gettext("%(delivered)d accepted, %(failed)d refused or failed") % {
        "delivered": health.delivered,
        "failed": health.failed,
    }
    return mark(percent(health.rate), "bad" if health.rate < _POOR else "plain", title)


@admin.display(description=_("failing for"), ordering="failing_since")
def failing(row: BizReceive) -> str:
    if row.failing_since is None:
        return NOTHING
    since = age((timezone.now() - row.failing_since).total_seconds())
    return mark(
        gettext("%(age)s, %(count)d in a row") % {"age": since, "count": row.failures},
        "bad" if is_failing(row) else "warn",
        moment(row.failing_since),
    )


@admin.display(description=_("waiting"))
def waiting(row: Any) -> str:
    count = row.health.waiting
    if count >= MAX_COUNTED:
        return gettext("%d or more") % MAX_COUNTED
    return str(count) if count else nothing("0")


@admin.display(description=_("due for"))
def oldest_due(row: Any) -> str:
    return NOTHING if row.health.due_seconds is None else age(row.health.due_seconds)


def patience(row: BizReceive) -> str:
    """A sentence: after how many attempts a delivery fails for good, by the stored schedule."""
    schedule = waits(row.schedule, row.attempts_limit)
    numbers = {
        "attempts": len(schedule) + 1,
        "span": age(sum(schedule)),
        "keep": age(limits.breaker_keep(schedule)),
    }
    if not schedule:
        end_text = gettext("A delivery is given up after one attempt.")
    else:
        end_text = gettext(
            "A delivery is given up after %(attempts)d attempts, about %(span)s after the first."
        )
    breaker_text = gettext(
        "While the breaker is open, deliveries wait for at least %(keep)s, though nothing is tried."
    )
    return f"{end_text} {breaker_text}" % numbers


@admin.display(description=_("in flight"))
def in_flight(row: Any) -> str:
    health: Health = row.health
    if not health.is_known:
        return gettext("unknown")
    open_now = health.lane.in_flight if health.lane else 0
    text = f"{open_now} / {row.in_flight_limit}"
    return text if open_now else nothing(text)


# -- the card ------------------------------------------------------------------------------------
_Delivery = ReceiveMsg.Status
# Lines in the card: enough to see the fault, the list has the rest.
FAILURES = 8


def card(row: Any) -> dict[str, Any]:
    """The context of the template `notify/subscription_card.html`."""
    now = timezone.now()
    row.health = read([row])[row.pk]
    # 24 steps, the hour that has just begun included.
    of_row = {"subscription": str(row.pk)}
    points = CounterQuery(ACTIVITY, "hour", now - timedelta(hours=23), now, of_row).series()
    disabled_at = disabled_on(row)
    filtered_count = sum(point.counts.get(FILTERED, 0) for point in points)
    success_counts: list[float | None] = [point.counts.get("delivered", 0) for point in points]
    failure_counts: list[float | None] = [point.counts.get("failed", 0) or None for point in points]
    lines = [  # of each hour; failures as bars
        Line(gettext("delivered"), success_counts, "good"),
        Line(gettext("failed attempts"), failure_counts, "lost", as_bars=True),
    ]
    times = labels([point.at for point in points])
    # Up to one more than is shown, so that the page can write "10000+" for more than 10000.
    keys = [[int(status), row.pk] for status in NOT_DELIVERED]
    condition = "status = %s AND biz_receive_id = %s"
    counts = count_up_to("receive_msg", condition, keys, MAX_COUNTED + 1)
    deliveries = [
        {
            "name": status.name.lower(),
            "label": status.label,
            "count": f"{MAX_COUNTED}+" if count > MAX_COUNTED else str(count),
        }
        for status, count in zip(NOT_DELIVERED, counts, strict=True)
        if count
    ]
    figures = [
        (gettext("waiting"), waiting(row)),
        (gettext("oldest due"), oldest_due(row)),
        (gettext("in flight"), in_flight(row)),
        (gettext("breaker"), breaker(row)),
        (gettext("success, last hour"), success(row)),
        (gettext("failures"), failed_deliveries(row)),
    ]
    if row.filter or filtered_count:
        figures.append((gettext("filtered, 24 hours"), str(filtered_count)))
    if row.filter_since:
        figures.append((gettext("filter holds since"), local(row.filter_since)))
    return {
        "status": state(row),
        "is_sending": row.status in BizReceive.ACTIVE,
        "is_discarded": row.status == _Status.DISCARDED,
        "is_paused": row.status == _Status.PAUSED,
        "figures": figures,
        "deliveries": deliveries,
        "chart": Chart("attempts", gettext("Attempts per hour"), times, lines, last_is_open=True),
        "delivered": sum(point.counts.get("delivered", 0) for point in points),
        "failed": sum(point.counts.get("failed", 0) for point in points),
        "failures": _failures(row),
        "is_failing": is_failing(row),
        "failing_since": moment(row.failing_since) if row.failing_since else "",
        "disabled_on": moment(disabled_at) if disabled_at else "",
    }


def _failures(row: BizReceive) -> list[tuple[Attempt, str]]:
    """The last failed attempts of deliveries that did not succeed, the latest first, with the
    titles of their answers.

    Read by the index (status, subscription, next_at): the delivery with the latest next attempt
    failed most recently, or most often. Held deliveries are read from both ends, because held
    deliveries that were made later were never tried.
    """
    ids: list[int] = []
    for status, order in (
        (_Delivery.PENDING, "-next_at"), (_Delivery.EXHAUSTED, "-next_at"),
        (_Delivery.HELD, "-next_at"), (_Delivery.HELD, "next_at"),
    ):  # fmt: skip
        rows = ReceiveMsg.objects.filter(status=status, biz_receive_id=row.pk)
        # Read more deliveries than are shown, because some have no failed attempt yet.
        ids += rows.order_by(order).values_list("id", flat=True)[: FAILURES * 4]
    last: dict[int, Attempt] = {}
    for attempt in Attempt.objects.filter(copy_id__in=ids).order_by("id").select_related("copy"):
        if not 200 <= attempt.http_status < 300:
            last[attempt.copy_id] = attempt
    attempts = sorted(last.values(), key=lambda attempt: attempt.at, reverse=True)[:FAILURES]
    return [(attempt, answer(attempt)) for attempt in attempts]
