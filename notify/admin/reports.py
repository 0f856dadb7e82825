"""Statistics per hour or day: of everything, of a system or of one subscription; page and CSV."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from msgplatform.admin import ModelAdmin, RowSelect, Select, cells, report
from msgplatform.jobs.time_steps import Step
from msgplatform.models import Biz
from notify.admin import chart
from notify.models import BizReceive, ReceiveMsg
from notify.monitor import statistics

_PERIODS = {
    "1d": (timedelta(days=1), _("24 hours")),
    "3d": (timedelta(days=3), _("3 days")),
    "7d": (timedelta(days=7), _("7 days")),
    "14d": (timedelta(days=14), _("14 days")),
    "30d": (timedelta(days=30), _("30 days")),
    "90d": (timedelta(days=90), _("90 days")),
    "365d": (timedelta(days=365), _("a year")),
}
_STEPS = {"hour": _("hour"), "day": _("day")}
_MOST_SUBSCRIPTIONS = 50


class ReportForm(forms.Form):
    """What to show; everything has a default."""

    period = forms.ChoiceField(
        label=_("Period"),
        choices=[(key, title) for key, (_span, title) in _PERIODS.items()],
        required=False,
        widget=Select,
    )
    step = forms.ChoiceField(
        label=_("Per"), choices=list(_STEPS.items()), required=False, widget=Select
    )
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

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        span = _PERIODS[cleaned.get("period") or "1d"][0]
        days = settings.MINUTE_COUNTER_DAYS
        step = cleaned.get("step") or ("hour" if span <= timedelta(days=min(3, days)) else "day")
        if step == "hour" and span > timedelta(days=days):
            self.add_error(
                "step", gettext("Hours are kept for %d days; choose days for a longer time.") % days
            )
        return {**cleaned, "step": step, "span": span}

    def period_of(self) -> tuple[datetime, datetime]:
        now = timezone.now()
        return now - self.cleaned_data["span"], now

    def owner(self) -> dict[str, int | None]:
        biz, row = self.cleaned_data.get("biz"), self.cleaned_data.get("subscription")
        return {"biz": biz.pk if biz else None, "subscription": row.pk if row else None}


def page(model_admin: ModelAdmin) -> report.View:
    """Chart, sums and a table of every step; without a subscription also the worst of them."""
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
    worst = []
    if owner["subscription"] is None:
        worst = _worst(step, since, until, owner["biz"])
    return {
        "points": [(p, cells.percent(p.success_share)) for p in reversed(points) if _happened(p)],
        "chart": chart.chart(points, by_day=step == "day"),
        "total": total,
        "share": cells.percent(total.success_share),
        "worst": worst,
        "step": step,
        "form_of_time": "Y-m-d" if step == "day" else "Y-m-d H:i",
        "step_name": _STEPS[step],
        "one_subscription": owner["subscription"] is not None,
        "subject": form.cleaned_data["subscription"] or form.cleaned_data["biz"],
    }


def _happened(point: statistics.Point) -> bool:
    return bool(point.accepted or point.attempts or point.exhausted)


def _worst(
    step: Step, since: datetime, until: datetime, biz: int | None
) -> list[tuple[BizReceive, statistics.Point, str]]:
    """Subscriptions with attempts, those with most failures first."""
    found = statistics.by_subscription(step, since, until, biz=biz)
    order = sorted(found, key=lambda pk: (-found[pk].failed, -found[pk].delivered))
    rows = BizReceive.objects.select_related("biz", "receive").in_bulk(order[:_MOST_SUBSCRIPTIONS])
    return [
        (rows[pk], found[pk], cells.percent(found[pk].success_share)) for pk in order if pk in rows
    ]
