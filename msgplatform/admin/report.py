"""Pages of statistics: a form that says what to show, the page, and the same as a CSV file.

Everything that was chosen is in the URL, so that a page can be sent to a colleague.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django import forms
from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminSelectWidget

from msgplatform.admin.base import ModelAdmin
from msgplatform.core.errors import InvalidInput

_PERIODS = {
    "1d": (timedelta(days=1), _("24 hours")),  # shown when nothing is chosen
    "1h": (timedelta(hours=1), _("an hour")),
    "3d": (timedelta(days=3), _("3 days")),
    "7d": (timedelta(days=7), _("7 days")),
    "14d": (timedelta(days=14), _("14 days")),
    "30d": (timedelta(days=30), _("30 days")),
    "90d": (timedelta(days=90), _("90 days")),
    "365d": (timedelta(days=365), _("a year")),
}
_STEPS = {"minute": _("minute"), "hour": _("hour"), "day": _("day")}
_FORMULA = ("=", "+", "-", "@", "\t")  # how a cell begins that spreadsheets run
F = TypeVar("F", bound=forms.Form)
View = Callable[[HttpRequest], Any]


class PeriodForm(forms.Form):
    """A period and its steps; a subclass adds whose counters. Every field has a default.

    The cleaned data has `span` and `step`; without a choice the step is one that fits the span.
    """

    period = forms.ChoiceField(
        label=_("Period"),
        choices=[(key, title) for key, (_span, title) in _PERIODS.items()],
        required=False,
        widget=UnfoldAdminSelectWidget,
    )
    step = forms.ChoiceField(
        label=_("Per"),
        choices=[("", _("step that fits")), *_STEPS.items()],
        required=False,
        widget=UnfoldAdminSelectWidget,
    )

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        span = _PERIODS[cleaned.get("period") or "1d"][0]
        days = settings.MINUTE_COUNTER_DAYS
        fitting = "hour" if span <= timedelta(days=min(3, days)) else "day"
        if span <= timedelta(hours=1):
            fitting = "minute"
        step = cleaned.get("step") or fitting
        if step != "day" and span > timedelta(days=days):
            self.add_error(
                "step", gettext("Hours are kept for %d days; choose days for a longer time.") % days
            )
        return {**cleaned, "step": step, "span": span}

    def period_of(self) -> tuple[datetime, datetime]:
        now = timezone.now()
        return now - self.cleaned_data["span"], now

    def steps_shown(self) -> dict[str, Any]:
        """For the template: the name of the step, and how its times are written."""
        step = self.cleaned_data["step"]
        form_of_time = "Y-m-d" if step == "day" else "Y-m-d H:i"
        return {"step": step, "step_name": _STEPS[step], "form_of_time": form_of_time}


def page(
    model_admin: ModelAdmin,
    form_class: type[F],
    template: str,
    context: Callable[[F], Mapping[str, Any]],
) -> View:
    """A view for people who may see the model's rows. The template gets `form`, `query` (what was
    chosen, for the file's URL) and, if the form is valid, what `context(form)` returns."""

    def view(request: HttpRequest) -> HttpResponse:
        form = _form(model_admin, form_class, request)
        found: Mapping[str, Any] = {}
        if form.is_valid():
            try:
                found = context(form)
            except InvalidInput as error:
                form.add_error(None, str(error))
        shown = {
            **model_admin.admin_site.each_context(request),
            "title": gettext("Statistics"), "opts": model_admin.opts, "form": form,
            "query": request.GET.urlencode(), **found,
        }  # fmt: skip
        return TemplateResponse(request, template, shown)

    return view


def as_csv(
    model_admin: ModelAdmin,
    form_class: type[F],
    file: Callable[[F], tuple[str, Iterable[list[str]]]],
) -> View:
    """A view that sends a CSV file. `file(form)` returns its name, without `.csv`, and its rows,
    which are sent while they are read."""

    def view(request: HttpRequest) -> Any:
        form = _form(model_admin, form_class, request)
        if not form.is_valid():
            return HttpResponse(str(form.errors.as_text()), status=400, content_type="text/plain")
        name, rows = file(form)
        return StreamingHttpResponse(
            _csv_lines(rows),
            content_type="text/csv; charset=utf-8",
            headers={"Content-Disposition": f'attachment; filename="{name}.csv"'},
        )

    return view


class _Echo:
    """A file that returns what is written to it, so that `csv` makes lines and keeps none."""

    def write(self, text: str) -> str:
        return text


def _csv_lines(rows: Iterable[list[str]]) -> Iterator[str]:
    writer = csv.writer(_Echo())
    yield "\ufeff"  # by which spreadsheets recognise UTF-8
    for row in rows:
        # A spreadsheet would run a cell that begins like a formula; with ' it is a text.
        yield writer.writerow([f"'{cell}" if cell[:1] in _FORMULA else cell for cell in row])


def _form(model_admin: ModelAdmin, form_class: type[F], request: HttpRequest) -> F:
    if not model_admin.has_view_permission(request):
        raise PermissionDenied
    return form_class(request.GET)
