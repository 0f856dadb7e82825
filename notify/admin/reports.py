"""Statistics per hour or day: of everything, of a system or of one subscription; page and CSV."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib import admin
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from msgplatform.admin import ModelAdmin, RowSelect, cells, report
from msgplatform.models import Biz
from notify.admin import chart
from notify.models import BizReceive, ReceiveMsg
from notify.monitor import statistics

# Rows of the table of subscriptions; a business system may have thousands.
_MOST_SUBSCRIPTIONS = 50


class ReportForm(report.PeriodForm):
    """What to show."""

    biz = forms.ModelChoiceField(
        Biz.objects,
        label=_("System"),
        required=False,
        widget=RowSelect(ReceiveMsg._meta.get_field("biz"), admin.site),
    )
    subscription = forms.ModelChoiceField(
        BizReceive.objects.select_related("biz", "receive"),
        label=_("Subscription"),
        required=False,
        widget=RowSelect(ReceiveMsg._meta.get_field("biz_receive"), admin.site),
    )

    def owner(self) -> dict[str, int | None]:
        biz, row = self.cleaned_data.get("biz"), self.cleaned_data.get("subscription")
        return {"biz": biz.pk if biz else None, "subscription": row.pk if row else None}


def page(model_admin: ModelAdmin) -> report.View:
    """Chart, sums and a table of every step; without a subscription also those that fail most."""
    return report.page(model_admin, ReportForm, "notify/statistics.html", _context)


def as_csv(model_admin: ModelAdmin) -> report.View:
    return report.as_csv(model_admin, ReportForm, _file)


def _file(form: ReportForm) -> tuple[str, Iterable[list[str]]]:
    since, until = form.period_of()
    step = form.cleaned_data["step"]
    rows = statistics.csv_rows(step, since, until, **form.owner())
    return f"notify-{step}-{timezone.localtime(until):%Y%m%d-%H%M}", rows


def _context(form: ReportForm) -> dict[str, Any]:
    since, until = form.period_of()
    step, owner = form.cleaned_data["step"], form.owner()
    points = statistics.series(step, since, until, **owner)
    total = statistics.total(step, since, until, **owner)
    worst: list[tuple[BizReceive, statistics.Point, str]] = []
    if owner["subscription"] is None:
        # Subscriptions with attempts, those with most failures first.
        found = statistics.by_subscription(step, since, until, biz=owner["biz"])
        order = sorted(found, key=lambda pk: (-found[pk].failed, -found[pk].delivered))
        wanted = BizReceive.objects.select_related("biz", "receive")
        rows = wanted.in_bulk(order[:_MOST_SUBSCRIPTIONS])
        worst = [
            (rows[pk], found[pk], cells.percent(found[pk].success_share))
            for pk in order
            if pk in rows
        ]
    return {
        "points": [
            (point, cells.percent(point.success_share))
            for point in reversed(points)
            if point.accepted or point.attempts or point.exhausted
        ],
        "chart": chart.chart(points, by_day=step == "day"),
        "total": total,
        "share": cells.percent(total.success_share),
        "worst": worst,
        **form.steps_shown(),
        "one_subscription": owner["subscription"] is not None,
        "subject": form.cleaned_data["subscription"] or form.cleaned_data["biz"],
    }
