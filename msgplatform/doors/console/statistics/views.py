"""Statistics of every flow over time and by group, ranked by failures: page and CSV file."""

import csv
from collections.abc import Iterable
from itertools import chain
from typing import Any
from urllib.parse import urlencode

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.utils import timezone
from django.utils.translation import gettext as _

from msgplatform.core.characters import fold
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.contract import Flow
from msgplatform.doors.console.statistics import tables
from msgplatform.doors.console.statistics.form import StatisticsForm
from msgplatform.doors.console.views.page import flow_of, page, staff_view, uncounted, visible
from msgplatform.monitor.statistics import groups

_TIME_FIELDS = ("period", "since", "until", "step")
_FORMULA = ("=", "+", "-", "@")  # a spreadsheet runs cells with these beginnings
_MAX_DIGITS = 15  # a spreadsheet rounds longer numbers


@staff_view("GET", answers_limited_people=True)
def statistics(request: HttpRequest) -> HttpResponse:
    """The statistics of one flow (`flow` in the address), or of all that the user may see."""
    uncounted_flows, visible_flows = uncounted(request), _counting_flows(request)
    if not visible_flows and not uncounted_flows:
        raise PermissionDenied
    flow = _flow(request)
    activity = flow.health.activity if flow else None
    form = StatisticsForm(activity, request.GET, request)
    context: dict[str, Any] = {}
    if form.is_valid() and visible_flows and flow not in uncounted_flows:
        context = {"zone": form.zone(), "is_found": True}
        try:
            if flow is None or activity is None:
                context |= tables.of_all(form, visible_flows, request)
            else:
                context |= tables.of_flow(form, flow, activity, request)
        except InvalidInput as error:
            context = {}
            form.add_error(error.field if error.field in form.fields else None, str(error))
    # The links to other flows keep the time.
    time = urlencode({name: value for name in _TIME_FIELDS if (value := request.GET.get(name))})
    return page(
        request, "statistics.html", _("Statistics"), form=form, flow=flow, flows=visible_flows,
        time=time, uncounted=uncounted_flows, **context,
    )  # fmt: skip


@staff_view("GET", answers_limited_people=True)
def as_csv(request: HttpRequest) -> HttpResponse | StreamingHttpResponse:
    """The counters of one flow as a file: a line for each step, or with `by` for each group of that
    dimension. Without `flow` the counters of all flows: a line for each flow and system."""
    flow, by = _flow(request), request.GET.get("by", "")
    activity = flow.health.activity if flow else None
    form = StatisticsForm(activity, request.GET, request)
    visible_flows = _counting_flows(request)
    if flow is None and not visible_flows:
        raise PermissionDenied
    dimensions = activity.dimensions if activity else ()
    dimension = next((part for part in dimensions if part.name == by), None)
    if flow and by and dimension is None:
        form.add_error(None, _("There is no such choice."))
    if flow and (sentence := uncounted(request).get(flow)):
        form.add_error(None, sentence)
    if form.is_valid():
        name_parts, until = ["all"], timezone.localtime(form.cleaned_data["until"])
        lines: Iterable[list[str]]
        try:
            if flow is None or activity is None:
                lines = list(tables.csv_of_all(form, visible_flows))
            else:
                name_parts = [flow.name, *([by] if by else []), form.cleaned_data["step"]]
                rows = groups.csv_lines(form.query(activity), dimension)
                lines = chain([next(rows)], rows)  # refuse too long a time before anything is sent
        except InvalidInput as error:
            form.add_error(None, str(error))
        else:
            return csv_response(f"{'-'.join(name_parts)}-{until:%Y%m%d-%H%M}", lines)
    return HttpResponse(form.errors.as_text(), status=400, content_type="text/plain")


def _counting_flows(request: HttpRequest) -> list[Flow]:
    """The flows that the user may see and whose messages are counted for this user."""
    skipped_flows = uncounted(request)
    return [flow for flow in visible(request) if flow.health.activity and flow not in skipped_flows]


def _flow(request: HttpRequest) -> Flow | None:
    """The flow in the address, None without one. Raises Http404 and PermissionDenied."""
    name = request.GET.get("flow", "")
    if not name:
        return None
    flow = flow_of(request, name)
    if flow.health.activity is None:
        raise Http404(_("This flow counts nothing."))
    return flow


def csv_response(name: str, rows: Iterable[list[str]]) -> StreamingHttpResponse:
    """A file with this name, without `.csv`."""
    writer = csv.writer(_Echo())
    lines = (writer.writerow(map(_cell, row)) for row in rows)
    return StreamingHttpResponse(
        chain(["\ufeff"], lines),  # spreadsheets recognise UTF-8 by it
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}.csv"'},
    )


def _cell(text: str) -> str:
    # A spreadsheet would run a cell that begins like a formula; ' makes it a text. A Chinese or
    # Japanese system also takes the full-width signs, and some ignore blanks before them.
    if text[:1] in ("\t", "\r") or fold(text).startswith(_FORMULA):
        return f"'{text}"
    # This formula keeps the digits of an id.
    return f'="{text}"' if len(text) > _MAX_DIGITS and text.isdecimal() else text


class _Echo:
    """A file that returns what is written to it: `csv` makes lines and stores none."""

    def write(self, text: str) -> str:
        return text
