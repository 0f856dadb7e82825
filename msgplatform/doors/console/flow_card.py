"""A flow on the overview: its figures and charts of the chosen time, and its backlog now."""

import math
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec
from django.urls import reverse
from django.utils.translation import gettext as _

from msgplatform.core.durations import age
from msgplatform.core.flows.activity import Activity, Counts, Figure
from msgplatform.core.flows.contract import Flow
from msgplatform.core.flows.health import Status
from msgplatform.core.flows.text import Text
from msgplatform.doors.admin import cells
from msgplatform.doors.admin.chart import Chart, Line, labels
from msgplatform.monitor.statistics.points import Point, total

GOOD_SHARE = 0.99  # share of ended deliveries; a smaller one is marked
_SHOWN_TONES = ("accepted", "good", "lost")


class CardNumber(NamedTuple):
    """A number of the chosen time; '' for no tone or no address."""

    title: Text
    value: Any
    tone: str = ""
    address: str = ""


class Card(msgspec.Struct, frozen=True):
    """`failures`: the number of failures that wait for a person."""

    flow: Flow
    status: Status | None  # None for people who do not see the backlog
    failures: int = 0
    numbers: Sequence[CardNumber] = ()
    charts: Sequence[Chart] = ()
    statistics: str = ""

    @property
    def is_idle(self) -> bool:
        """True if there is nothing to show: nothing waits, nothing happened."""
        is_busy = self.status is not None and (self.status.backlog or self.status.problem)
        return not (is_busy or self.failures or self.charts)


def card(
    flow: Flow, status: Status | None, failures: int, points: Sequence[Point],
    backlog: Sequence[float | None], step: str, period: str,
) -> Card:  # fmt: skip
    """`points` are empty for a flow without counters. `backlog` has a value for each point."""
    if flow.health.activity is None or not points:
        return Card(flow, status, failures)
    query = urlencode({"flow": flow.name, "period": period})
    address = f"{reverse('console:statistics')}?{query}"
    # The backlog has a chart of its own: on its scale in an outage other lines would be flat.
    waiting = Chart(
        f"{flow.name}-waiting",
        _("Waiting"),
        labels([point.at for point in points]),
        [Line(_("waiting"), backlog, "limit", is_area=True)],
    )
    activity = flow.health.activity
    # Without `status` the person is limited to business systems, but live counts cover all systems.
    live_names: set[str] = set()
    if status is None:
        live_names = {measure.name for measure in activity.measures if measure.is_live}
    counts = over_time(
        flow.name, activity, points, step=step, is_recent=True, omitted_names=live_names
    )
    sums = total(points)
    numbers: list[CardNumber] = []
    for measure in activity.measures:
        if measure.name in live_names or measure.tone not in _SHOWN_TONES:
            continue
        value = measure.of(sums)
        tone, url = ("lost", address) if measure.tone == "lost" and value else ("", "")
        numbers.append(CardNumber(measure.title, value, tone, url))
    share = activity.success(sums)
    tone = "" if share is None or share >= GOOD_SHARE else "lost"
    numbers.append(CardNumber(_("success"), cells.percent(share), tone))
    numbers += [
        CardNumber(figure.title, format_figure(figure, sums)) for figure in activity.figures
    ]
    return Card(
        flow,
        status,
        failures,
        numbers,
        [chart for chart in (counts, waiting) if not chart.is_empty],
        address,
    )


def over_time(
    name: str, activity: Activity, points: Sequence[Point], *, step: str,
    by_day: bool = False, is_recent: bool = False, last_is_open: bool = False,
    omitted_names: Collection[str] = (),
) -> Chart:  # fmt: skip
    """The measures of a flow in each step, such as accepted and delivered. `is_recent`: the last
    day, whose last step has not ended; `last_is_open` says the same of another time. Measures in
    `omitted_names` are left out."""
    # Live measures cover only the last day: a chart of another time leaves them out.
    measures = activity.measures if is_recent else activity.stored_measures
    lines = []
    for measure in measures:
        if measure.tone not in _SHOWN_TONES or measure.name in omitted_names:
            continue
        values: list[float | None] = [measure.of(point.counts) for point in points]
        if measure.tone == "lost":  # a bar of 0 has no height
            values = [value or None for value in values]
        lines.append(Line(measure.title, values, measure.tone, as_bars=measure.tone == "lost"))
    times = labels([point.at for point in points], by_day)
    title = _("Counts per %s") % step
    return Chart(name, title, times, lines, last_is_open=is_recent or last_is_open)


def format_figure(figure: Figure, counts: Counts) -> Any:
    """A figure with its unit; a dash without a count."""
    value = figure.of(counts)
    if value is None:
        return cells.NOTHING
    if figure.unit == "number":
        return f"{value:.1f}"
    if span := figure.span(counts):
        low, high = span
        if high == math.inf:
            return _("more than %s") % age(low)
        return _("%(low)s to %(high)s") % {"low": age(low), "high": age(high)}
    return age(value) if value >= 1 else _("%d ms") % round(value * 1000)
