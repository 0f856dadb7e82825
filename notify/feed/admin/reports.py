"""Statistics per minute, hour or day, of all systems or of one, by topic; as a page and as CSV."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib import admin
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from msgplatform.admin import ModelAdmin, RowSelect, Select, cells, report
from msgplatform.models import Biz
from notify.feed.admin.chart import chart
from notify.feed.models import EventQueue
from notify.feed.monitor import statistics
from notify.feed.monitor.statistics import Point


class ReportForm(report.PeriodForm):
    """What to show."""

    biz = forms.ModelChoiceField(
        Biz.objects,
        label=_("System"),
        required=False,
        widget=RowSelect(EventQueue._meta.get_field("biz"), admin.site),
    )
    topic = forms.ChoiceField(
        label=_("Topic"),
        choices=[("", _("all")), *EventQueue.Topic.choices],
        required=False,
        widget=Select,
    )

    def owner(self) -> dict[str, Any]:
        biz, topic = self.cleaned_data.get("biz"), self.cleaned_data.get("topic")
        topics = [topic] if topic else statistics.TOPICS
        return {"biz": biz.pk if biz else None, "topics": topics}


def page(model_admin: ModelAdmin) -> report.View:
    """Sums, a chart, a table of the topics and one of every step."""
    return report.page(model_admin, ReportForm, "admin/feed/statistics.html", _context)


def as_csv(model_admin: ModelAdmin) -> report.View:
    """The same as a file."""

    def file(form: ReportForm) -> tuple[str, Iterable[list[str]]]:
        since, until = form.period_of()
        step = form.cleaned_data["step"]
        rows = statistics.csv_rows(step, since, until, **form.owner())
        return f"feed-{step}-{timezone.localtime(until):%Y%m%d-%H%M}", rows

    return report.as_csv(model_admin, ReportForm, file)


def _context(form: ReportForm) -> dict[str, Any]:
    since, until = form.period_of()
    step, owner = form.cleaned_data["step"], form.owner()
    points = statistics.series(step, since, until, **owner)
    topics = statistics.by_topic(step, since, until, biz=owner["biz"])
    chosen = [topic for topic in topics if topic in owner["topics"]]
    return {
        "points": [_line(p.at, p) for p in reversed(points) if any(p.counts.values())],
        "total": _line("", statistics.together(since, points)),
        "topics": [_line(EventQueue.Topic(topic).label, topics[topic]) for topic in chosen],
        "chart": chart(
            gettext("Entries written"),
            [point.at for point in points],
            [float(point.entries) for point in points],
            lambda value: f"{value:.0f}",
        ),
        **form.steps_shown(),
    }


def _line(title: Any, point: Point) -> dict[str, Any]:
    each = cells.NOTHING if point.entries_each is None else f"{point.entries_each:.1f}"
    return {"title": title, "point": point, "each": each}
