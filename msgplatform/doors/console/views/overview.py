"""The first page: problems, and how every flow and program is doing."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _, gettext_lazy

from msgplatform import person_limits
from msgplatform.core import flows, outbound, personal
from msgplatform.core.connections import RedisError
from msgplatform.core.data import sql
from msgplatform.core.errors import UNAVAILABLE
from msgplatform.core.flows.contract import Flow
from msgplatform.core.flows.health import Status
from msgplatform.core.flows.text import Text
from msgplatform.doors.admin import sees_personal
from msgplatform.doors.console import condition, flow_card
from msgplatform.doors.console.views import getting_started, page as pages
from msgplatform.jobs.models import BulkJob
from msgplatform.models import Alert
from msgplatform.monitor import failure_groups, runbooks
from msgplatform.monitor.statistics import recent
from msgplatform.monitor.statistics.recent import Span
from msgplatform.monitor.watch import of_flows

ALERTS_SHOWN = 20
TROUBLES_SHOWN = 5
# A shorter lag is work in progress, not trouble.
LATE_SECONDS = 30.0


class Period(msgspec.Struct, frozen=True):
    """A time that the page shows. It renews itself after `refresh_seconds`: a longer time has more
    counters to read."""

    span: Span
    refresh_seconds: int
    title: Text
    heading: Text
    step: Text  # the title of a step of the charts


PERIODS = {
    "1h": Period(
        Span(timedelta(minutes=1), 60), 10,
        gettext_lazy("an hour"), gettext_lazy("In the last hour"), gettext_lazy("minute"),
    ),
    "6h": Period(
        Span(timedelta(minutes=5), 72), 30,
        gettext_lazy("6 hours"), gettext_lazy("In the last 6 hours"), gettext_lazy("5 minutes"),
    ),
    "24h": Period(
        Span(timedelta(hours=1), 24), 60,
        gettext_lazy("24 hours"), gettext_lazy("In the last 24 hours"), gettext_lazy("hour"),
    ),
}  # fmt: skip


@pages.staff_view("GET", answers_limited_people=True)
def overview(request: HttpRequest) -> HttpResponse:
    """Flows with their charts and backlog, what is in trouble, open alerts, programs, bulk jobs.

    With `live` in the address: the parts that change alone, for the page that renews itself. The
    page says that nothing needs attention only if that holds for all of it, not just for alerts.
    """
    name = request.GET.get("period", "")
    name = name if name in PERIODS else next(iter(PERIODS))
    period = PERIODS[name]
    state = condition.of_request(request)
    clear, systems = sees_personal(request), person_limits.systems_of(request)
    exits = state.exits
    if not clear:
        exits = {role: personal.mask_sentence(text) for role, text in exits.items()}
    alerts: list[Alert] = []
    more_alerts = 0
    if request.user.has_perm("msgplatform.view_alert"):
        open_rows = condition.open_alerts()
        if systems is not None:
            open_rows = runbooks.of_systems(open_rows, frozenset(systems.values()))
        alerts = list(open_rows[:ALERTS_SHOWN])
        more_alerts = max(0, open_rows.count() - ALERTS_SHOWN)
    for alert in alerts:
        alert.translate()
        alert.subject = alert.subject if clear else personal.mask_sentence(alert.subject)
    names = [flow.name for flow in pages.visible(request)] if pages.can_see_jobs(request) else []
    open_jobs = pages.jobs_of(request).filter(state__in=BulkJob.FROM["cancelled"], flow__in=names)
    context = {
        **_flows(request, name, period),
        "condition": state,
        "failures": condition.count_failures(request),
        "alerts": alerts,
        "more_alerts": more_alerts,
        "exits": exits,
        "late_after": settings.ALERT_BACKLOG_MINUTES * 60,
        "jobs": open_jobs[:20],
        "seconds": period.refresh_seconds,
        "outbound_is_off": outbound.is_off(),
    }
    # For people who are limited to business systems `state` does not count failures.
    context["is_calm"] = not (
        state.problem_count or state.acknowledged or context["problems"] or context["failures"]
    )
    if "live" in request.GET:
        return render(request, "console/overview_live.html", context)
    first_parts = []
    if not person_limits.is_limited(request) and getting_started.is_new(request):
        first_parts = getting_started.parts(request)
    return pages.page(
        request, "overview.html", _("Overview"), period=name,
        periods=[(key, period.title) for key, period in PERIODS.items()],
        first_parts=first_parts, **context,
    )  # fmt: skip


def _flows(request: HttpRequest, period_name: str, period: Period) -> dict[str, Any]:
    """A card for each flow that this person may see, and the groups in most trouble. People who are
    limited to business systems do not see figures of all systems together: the backlog, and the
    reports of the programs."""
    systems, ids = person_limits.systems_of(request), person_limits.ids_of(request)
    visible_flows, now = pages.visible(request), sql.now()
    statuses: dict[Flow, Status] = {}
    waiting: Mapping[str, Sequence[float | None]] = {}
    failures: dict[str, int] = {}
    problems: list[Any] = []
    if systems is None:
        # Ask all flows: a problem of a flow that this person may not see also keeps the page from
        # being calm.
        statuses = {flow: flow.health.status() for flow in flows.all()}
        problems += [status.problem for status in statuses.values() if status.problem]
        waiting = _backlogs(visible_flows, period.span, now)
        failures |= failure_groups.count_by_flow(flow.name for flow in visible_flows)
    for flow in visible_flows if systems is not None else ():
        try:
            groups = failure_groups.failures_of(flow, systems)
            failures[flow.name] = sum(group.count for group in groups)
        except UNAVAILABLE as error:
            problems.append(str(error)[:200])
    points = recent.series(visible_flows, period.span, now, ids)
    lags = {flow: statuses[flow].oldest_by if statuses else {} for flow in visible_flows}
    worst_groups = recent.worst(lags, now, TROUBLES_SHOWN, LATE_SECONDS, ids)
    # `troubles`: each group with its page's address, '' if this person may not see the page.
    troubles = []
    for trouble in worst_groups:
        activity, url = trouble.flow.health.activity, trouble.group.url
        can_open = activity and request.user.has_perm(activity.dimensions[0].permission)
        has_page = can_open and person_limits.may_open(request, url)
        troubles.append((trouble, url if has_page else ""))
    cards = [
        flow_card.card(
            flow,
            statuses.get(flow),
            failures.get(flow.name, 0),
            points.get(flow.name, []),
            waiting.get(flow.name, ()),
            str(period.step),
            period_name,
        )
        for flow in visible_flows
    ]
    idle_flows = [card.flow for card in cards if card.is_idle]
    if systems is None:
        idle_flows = [flow for flow in idle_flows if not pages.is_set_up(flow)]
    return {
        "cards": [card for card in cards if card.flow not in idle_flows],
        "unused": idle_flows if systems is None else [],
        "heading": period.heading,
        "troubles": troubles,
        "problems": problems,
        "is_limited": systems is not None,
        "uncounted": pages.uncounted(request),
    }


def _backlogs(
    visible_flows: Sequence[Flow], span: Span, now: datetime
) -> Mapping[str, list[float | None]]:
    """Flow → the most messages that waited in each step; None for a step without a look."""
    try:
        counts_by_flow = of_flows.read_backlogs(flow.name for flow in visible_flows)
    except RedisError:  # the page says so above
        return {}
    values_by_flow: dict[str, list[float | None]] = {}
    for name, minutes in counts_by_flow.items():
        highest_counts: dict[datetime, int] = {}
        for seconds, count in minutes.items():
            start = span.start(datetime.fromtimestamp(seconds, UTC))
            highest_counts[start] = max(count, highest_counts.get(start, 0))
        values_by_flow[name] = [highest_counts.get(start) for start in span.starts(now)]
    return values_by_flow
