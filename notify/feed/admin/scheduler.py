"""The page of the scheduler: the pace of dispatchers now, its reason, and charts."""

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy as _

from msgplatform.core.connections import RedisError
from msgplatform.core.data import sql
from msgplatform.core.durations import age
from msgplatform.doors.admin import ModelAdmin, cells
from msgplatform.doors.admin.chart import Chart, Line, Unit, labels
from msgplatform.doors.admin.pages import show_page
from notify.feed import presence
from notify.feed.dispatcher.pace import COMFORTABLE_LOAD, parse_hours
from notify.feed.models import EventQueue, FeedPace
from notify.feed.presence import PaceDecision

PERIODS = {
    "1h": (timedelta(hours=1), _("an hour")),
    "6h": (timedelta(hours=6), _("6 hours")),
    "24h": (timedelta(hours=24), _("24 hours")),
    "7d": (timedelta(days=7), _("7 days")),
}
_STEPS = 180  # of a chart: for an hour a step is 20 seconds
_COLUMNS = ("load", "events", "backlog", "oldest", "latency", "share")
_REFRESH_SECONDS = 10  # as often as a row is written
_LIVE = ("1h", "6h")  # periods that are refreshed; longer periods read tens of thousands of rows


def view(model_admin: ModelAdmin, request: HttpRequest) -> HttpResponse:
    """The page, for people with the permission to see the queue."""
    if not model_admin.has_view_permission(request):
        raise PermissionDenied
    period = request.GET.get("period", "")
    period = period if period in PERIODS else next(iter(PERIODS))
    charts = _charts(PERIODS[period][0])
    live = "_live" if "live" in request.GET else ""
    return show_page(
        model_admin, request, f"admin/feed/scheduler{live}.html", gettext("Scheduler"),
        period=period, seconds=_REFRESH_SECONDS if period in _LIVE else 0,
        periods=[(key, words) for key, (_span, words) in PERIODS.items()],
        charts=charts, **_now(), hours_zone=timezone.get_default_timezone_name(),
        nothing_recorded=all(value is None for value in charts[0].lines[0].values),
    )  # fmt: skip


# -- now -------------------------------------------------------------------------------------------
def _now() -> dict[str, Any]:
    """The last decision with its figures, and the rules that bound it."""
    policies = [
        {"from": rule.first, "to": rule.end, "max_share": cells.percent(rule.max_share),
         "is_now": rule.holds(timezone.localtime(timezone=timezone.get_default_timezone()).hour)}
        for rule in parse_hours(settings.FEED_SHARE_BY_HOUR)
    ]  # fmt: skip
    context: dict[str, Any] = {
        "policies": policies,
        "least": cells.percent(settings.FEED_MIN_SHARE),
    }
    try:
        decision, reports = presence.read_decision(), presence.dispatchers.read()
    except RedisError:
        return context | {"is_unavailable": True}
    if decision is None:
        return context | {"working": len(reports)}
    figures = [
        (gettext("share of their time that dispatchers work"), cells.percent(decision.share)),
        (gettext("events in a batch, at most"), str(decision.events)),
        (gettext("load"), f"{decision.load:.2f}"),
        (gettext("statements of others, target %g") % settings.FEED_TARGET_STATEMENTS,
         f"{decision.statements:.1f}"),
        (gettext("database latency"),
         gettext("%(now).1f ms; %(rest).1f ms at rest")
         % {"now": decision.latency, "rest": decision.baseline}),
        (gettext("processors at work, target %d %%") % round(settings.FEED_TARGET_CPU * 100),
         cells.percent(decision.cpu)),
        (gettext("dispatchers"), str(len(reports))),
        (gettext("decided by"), decision.by),
        (gettext("decided"), gettext("%s ago") % age(max(0.0, time.time() - decision.at))),
    ]  # fmt: skip
    return context | {
        "decision": decision,
        "why": _why(decision),
        "is_giving_way": decision.load > 1,
        "figures": figures,
        "oldest": [
            (str(EventQueue.Topic(topic).label), age(seconds))
            for topic, seconds in decision.oldest.items()
            if topic in EventQueue.Topic.values
        ],
    }


def _why(decision: PaceDecision) -> str:
    cause = str(dict(FeedPace.Cause.choices).get(decision.cause, decision.cause))
    if decision.load > 1:
        text = gettext("Dispatchers give way, because of: %s.") % cause
        if decision.share <= decision.min_share:
            text += " " + gettext("They keep the least share.")
        return text
    if decision.share >= decision.max_share:
        if decision.max_share < 1:
            return gettext("Dispatchers work as much as the policy of this hour allows.")
        return gettext("Dispatchers work at full speed: nobody has to wait for them.")
    if decision.load < COMFORTABLE_LOAD:
        return gettext("Dispatchers become faster every second: the server has spare capacity.")
    return gettext("Dispatchers keep their speed: the load is near its target.")


# -- the last hours --------------------------------------------------------------------------------
def _charts(span: timedelta) -> list[Chart]:
    now = sql.now()
    since, length = now - span, span / _STEPS
    times = [since + n * length for n in range(_STEPS)]
    steps: list[list[Sequence[float]]] = [[] for _n in range(_STEPS)]
    rows = FeedPace.objects.filter(at__gte=since, at__lte=now).order_by("at")
    for at, *values in rows.values_list("at", *_COLUMNS).iterator(chunk_size=5000):
        steps[min(_STEPS - 1, int((at - since) / length))].append(values)
    # The worst value of each step, so that a short peak is visible.
    load, events, backlog, oldest, latency = (
        [max(values[n] for values in step) if step else None for step in steps]
        for n in range(len(_COLUMNS) - 1)
    )
    share = [min(values[-1] for values in step) if step else None for step in steps]
    is_late = any(value and value > settings.FEED_LATE_SECONDS / 2 for value in oldest)
    late = gettext("Above the dashed line it is late, and dispatchers work harder.")
    return [
        _chart("load", gettext("Load"), times, load, "number", limit=1.0,
               note=gettext("Above the dashed line dispatchers give way.")),
        _chart("share", gettext("Share of their time that dispatchers work"), times, share,
               "share", min_top=1.0, note=gettext("The smallest within each step.")),
        _chart("events", gettext("Events in a batch"), times, events),
        _chart("backlog", gettext("Events waiting"), times, backlog),
        _chart("oldest", gettext("Age of the oldest event"), times, oldest, "seconds",
               limit=settings.FEED_LATE_SECONDS if is_late else None, note=late if is_late else ""),
        _chart("latency", gettext("Database latency"), times, latency, "milliseconds"),
    ]  # fmt: skip


def _chart(
    name: str, title: str, times: Sequence[datetime], values: Sequence[float | None],
    unit: Unit = "count", *, limit: float | None = None, note: str = "", min_top: float = 0.0,
) -> Chart:  # fmt: skip
    lines = [Line(title, values)]
    if limit is not None:
        lines.append(Line(gettext("limit"), [limit] * len(times), "limit"))
    return Chart(name, title, labels(times), lines, unit, note, min_top)
