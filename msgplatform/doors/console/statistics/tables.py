"""The tables and charts of the page of statistics."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Literal

import msgspec
from django.http import HttpRequest
from django.urls import reverse
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from msgplatform import person_limits
from msgplatform.core.flows.activity import SYSTEM, Activity, Counts, Dimension, Group
from msgplatform.core.flows.contract import Flow
from msgplatform.core.flows.text import Text
from msgplatform.doors.admin import cells
from msgplatform.doors.admin.chart import Chart, Line, Tone, labels
from msgplatform.doors.console import flow_card
from msgplatform.doors.console.statistics.form import STEPS, StatisticsForm
from msgplatform.doors.templatetags.formats import grouped
from msgplatform.monitor.statistics import groups
from msgplatform.monitor.statistics.points import CounterQuery, is_last_open, total

# Maximum rows of a table; its file has all rows.
SHOWN = 50
_STEPS_SHOWN = 200
_FIGURE_TONES: tuple[Tone, ...] = ("good", "bad", "accepted")


class Row(msgspec.Struct, frozen=True):
    """`url` is the address of the statistics of this row alone, `page` that of the subject
    itself; '' for none. `values` are numbers and marks, in the order of the columns."""

    title: str
    values: Sequence[Any]
    url: str = ""
    page: str = ""


class Table(msgspec.Struct, frozen=True):
    """`more`: the number of rows that are left out; `file`: the address of a file with all."""

    title: Text
    heading: Text
    columns: Sequence[Text]
    rows: Sequence[Row]
    more: int = 0
    file: str = ""


class FlowCounts(msgspec.Struct, frozen=True):
    """The counts of a flow, or of one of its groups."""

    flow: Flow
    activity: Activity
    group: Group | None
    counts: Counts

    def total(self, tone: Literal["good", "lost", "bad"]) -> int:
        return self.activity.total(tone, self.counts)

    @property
    def values(self) -> list[Any]:
        """The values that every flow has, in the order of their columns."""
        success = cells.percent(self.activity.success(self.counts))
        return [self.total("good"), _failures_cell(self.total("lost")), self.total("bad"), success]


def of_flow(
    form: StatisticsForm, flow: Flow, activity: Activity, request: HttpRequest
) -> dict[str, Any]:
    query = form.query(activity)
    points, sums = query.series(), groups.sums(query)
    counts, by_day = total(points), query.step == "day"
    uncounted_names = activity.uncounted(query.selection)
    is_open = is_last_open(query.step, query.until)
    # Label all steps: the busy steps alone may be of one day, and would lose the date that they
    # need.
    starts = [point.at for point in points]
    times = labels(starts, by_day)
    time_labels = dict(zip(starts, times, strict=True))
    figures = [figure for figure in activity.figures if figure.unit == "seconds"]
    lines = [
        Line(figure.title, [figure.of(point.counts) for point in points], tone)
        for figure, tone in zip(figures, _FIGURE_TONES, strict=False)
    ]
    charts = [
        flow_card.over_time(
            "counts", activity, points, step=str(STEPS[query.step]), by_day=by_day,
            last_is_open=is_open, omitted_names=uncounted_names,
        ),
        Chart("times", _("How long it took"), times, lines, "seconds", last_is_open=is_open),
    ]  # fmt: skip
    tables = [
        _by_dimension(form, query, dimension, sums, request)
        for dimension in activity.dimensions
        if dimension.name not in query.selection
    ]
    columns = _columns(activity)
    busy_points = [point for point in reversed(points) if any(point.counts.values())]
    rows = [
        Row(time_labels[point.at], _values(activity, point.counts, uncounted_names))
        for point in busy_points[:_STEPS_SHOWN]
    ]
    title, more = _("Per %s, the latest first") % STEPS[query.step], len(busy_points) - len(rows)
    file = _address(request, "console:statistics-csv")
    selected_groups = [
        (group, _can_open(request, dimension, group))
        for dimension in activity.dimensions
        if dimension.name in query.selection
        for group in dimension.named([query.selection[dimension.name]]).values()
    ]
    return {
        "numbers": list(zip(columns, _values(activity, counts, uncounted_names), strict=True)),
        "chosen": selected_groups,
        "is_empty": not any(counts.values()),
        "charts": [chart for chart in charts if not chart.is_empty],
        "tables": [table for table in tables if table.rows],
        "answers": groups.answers(activity, counts),
        "steps": Table(title, _("Time"), columns, rows, more, file),
        "note": activity.note,
    }


def of_all(
    form: StatisticsForm, visible_flows: Iterable[Flow], request: HttpRequest
) -> dict[str, Any]:
    """Rows for each flow, and for each business system in each flow."""
    flow_rows: list[Row] = []
    system_rows: list[tuple[int, Row]] = []  # each with its failures
    for line in _lines_of_all(form, visible_flows):
        flow, group, values = line.flow, line.group, line.values
        if group is None:
            flow_rows.append(Row(str(flow.title), values, _address(request, flow=flow.name)))
            continue
        url = _address(request, flow=flow.name, **{SYSTEM: group.key})
        system_rows.append((line.total("lost"), Row(group.title, [flow.title, *values], url)))
    system_rows.sort(key=lambda pair: -pair[0])
    rows = [row for _failures, row in system_rows]
    columns = [_("Delivered"), _("Not delivered"), _("Failed attempts"), _("Success")]
    title, more = _("By system, what lost most first"), max(0, len(rows) - SHOWN)
    file = _address(request, "console:statistics-csv")
    tables = [
        Table(_("By flow"), _("Flow"), columns, flow_rows, file=file),
        Table(title, _("System"), [_("Flow"), *columns], rows[:SHOWN], more, file),
    ]
    return {"tables": tables}


def csv_of_all(form: StatisticsForm, visible_flows: Iterable[Flow]) -> Iterator[list[str]]:
    """The same as lines of a file. The line of a whole flow names no system."""
    yield ["flow", "system", "delivered", "not_delivered", "failed_attempts"]
    for line in _lines_of_all(form, visible_flows):
        totals = (str(line.total(tone)) for tone in ("good", "lost", "bad"))
        yield [line.flow.name, line.group.title if line.group else "", *totals]


def _lines_of_all(form: StatisticsForm, visible_flows: Iterable[Flow]) -> Iterator[FlowCounts]:
    """The counts of each flow, followed by those of its business systems."""
    for flow in visible_flows:
        if (activity := flow.health.activity) is None:
            continue
        query = form.query(activity)
        query.check()
        sums = groups.sums(query)
        yield FlowCounts(flow, activity, None, groups.whole(sums))
        for dimension in activity.dimensions:
            if dimension.name == SYSTEM:
                for line in groups.table(query, dimension, sums):
                    yield FlowCounts(flow, activity, line.group, line.counts)


def _by_dimension(
    form: StatisticsForm,
    query: CounterQuery,
    dimension: Dimension,
    sums: groups.Sums,
    request: HttpRequest,
) -> Table:
    lines = groups.table(query, dimension, sums)
    can_choose = dimension.name in form.fields
    uncounted_names = {*dimension.uncounted, *query.activity.uncounted(query.selection)}
    rows = [
        Row(
            line.group.title,
            _values(query.activity, line.counts, uncounted_names),
            _address(request, **{dimension.name: line.group.key}) if can_choose else "",
            line.group.url if _can_open(request, dimension, line.group) else "",
        )
        for line in lines[:SHOWN]
    ]
    title = _("By %s, what lost most first") % dimension.title
    file = _address(request, "console:statistics-csv", by=dimension.name)
    more = max(0, len(lines) - SHOWN)
    return Table(title, capfirst(str(dimension.title)), _columns(query.activity), rows, more, file)


def _can_open(request: HttpRequest, dimension: Dimension, group: Group) -> bool:
    """True if this person may open the page of the group itself."""
    has_permission = request.user.has_perm(dimension.permission)
    return has_permission and person_limits.may_open(request, group.url)


def _columns(activity: Activity) -> list[Text]:
    titles = [measure.title for measure in activity.stored_measures]
    return [*titles, _("success"), *(figure.title for figure in activity.figures)]


def _values(activity: Activity, counts: Counts, uncounted_names: Collection[str] = ()) -> list[Any]:
    """Measures in `uncounted_names` are not counted here: they show a dash, not 0."""
    row: list[Any] = []
    for measure in activity.stored_measures:
        value = measure.of(counts)
        cell = _failures_cell(value) if measure.tone == "lost" else value
        row.append(cells.NOTHING if measure.name in uncounted_names else cell)
    row.append(cells.percent(activity.success(counts)))
    row += [flow_card.format_figure(figure, counts) for figure in activity.figures]
    return row


def _failures_cell(failures: int) -> Any:
    return cells.mark(grouped(failures), "bad") if failures else failures


def _address(request: HttpRequest, view: str = "console:statistics", **parameters: str) -> str:
    """The address of this page with these parameters changed."""
    copy = request.GET.copy()
    for name, value in parameters.items():
        copy[name] = value
    return f"{reverse(view)}?{copy.urlencode()}"
