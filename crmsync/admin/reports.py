"""Statistics per minute, hour or day: by source, CRM and class of error; page and CSV."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django import forms
from django.contrib import admin
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from crmsync.models import Crm, Policy, Source
from crmsync.monitor import statistics
from crmsync.monitor.statistics import Point
from msgplatform.admin import ModelAdmin, RowSelect, cells, report


class ReportForm(report.PeriodForm):
    """The period, and the source and CRM to which the statistics are narrowed."""

    source = forms.ModelChoiceField(
        Source.objects,
        label=_("Source"),
        required=False,
        widget=RowSelect(Policy._meta.get_field("source"), admin.site),
    )
    crm = forms.ModelChoiceField(
        Crm.objects,
        label=_("CRM"),
        required=False,
        widget=RowSelect(Policy._meta.get_field("crm"), admin.site),
    )

    def policies(self) -> list[int] | None:
        """The policies of the chosen source and CRM; None for all."""
        chosen = {name: row for name in ("source", "crm") if (row := self.cleaned_data.get(name))}
        if not chosen:
            return None
        return list(Policy.objects.filter(**chosen).values_list("id", flat=True))


def page(model_admin: ModelAdmin) -> report.View:
    """Sums by source, CRM and class of error, and a table of every step."""
    return report.page(model_admin, ReportForm, "admin/crmsync/statistics.html", _context)


def as_csv(model_admin: ModelAdmin) -> report.View:
    """The same table as a file."""

    def file(form: ReportForm) -> tuple[str, Iterable[list[str]]]:
        since, until = form.period_of()
        step = form.cleaned_data["step"]
        rows = statistics.csv_rows(step, since, until, policies=form.policies())
        return f"crm-sync-{step}-{timezone.localtime(until):%Y%m%d-%H%M}", rows

    return report.as_csv(model_admin, ReportForm, file)


def _context(form: ReportForm) -> dict[str, Any]:
    since, until = form.period_of()
    step, policies = form.cleaned_data["step"], form.policies()
    points = statistics.series(step, since, until, policies=policies)
    found = statistics.by_policy(step, since, until, policies=policies)
    # The database's URL is encrypted, and not needed for names.
    rows = Policy.objects.select_related("source", "crm").defer("source__database", "mapping")
    known = rows.in_bulk(list(found))
    total = statistics.together(since, found.values())
    return {
        "points": [_line(p.at, p) for p in reversed(points) if any(p.counts.values())],
        "total": _line("", total),
        # A policy that was deleted since keeps its counts, without a name.
        "sources": _grouped(found, lambda pk: str(known[pk].source) if pk in known else "–"),
        "crms": _grouped(found, lambda pk: str(known[pk].crm) if pk in known else "–"),
        "errors": sorted(total.failed.items(), key=lambda pair: -pair[1]),
        **form.steps_shown(),
    }


def _grouped(found: Mapping[int, Point], name: Callable[[int], str]) -> list[dict[str, Any]]:
    """A line for each name; the one with the most confirmed records comes first."""
    groups: dict[str, list[Point]] = defaultdict(list)
    for policy, point in found.items():
        groups[name(policy)].append(point)
    lines = [
        _line(title, statistics.together(points[0].at, points)) for title, points in groups.items()
    ]
    return sorted(lines, key=lambda line: -line["point"].confirmed)


def _line(title: Any, point: Point) -> dict[str, Any]:
    seconds = gettext("%.3f s") % point.seconds if point.seconds is not None else cells.NOTHING
    share = cells.percent(point.success_share)
    return {"title": title, "point": point, "share": share, "seconds": seconds}
