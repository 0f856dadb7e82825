"""Statistics per hour or day: of everything, of a system or of one subscription; page and CSV.

Everything that was chosen is in the address, so that a page can be sent to a colleague.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from msgplatform.admin import ModelAdmin, RowSelect, Select, cells, csv_response
from msgplatform.core.errors import InvalidInput
from msgplatform.models import Biz
from notify.admin import chart
from notify.models import BizReceive, ReceiveMsg
from notify.monitor import statistics

View = Callable[[HttpRequest], Any]
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


def page(model_admin: ModelAdmin) -> View:
    """Chart, sums and a table of every step; without a subscription also the worst of them."""

    def view(request: HttpRequest) -> HttpResponse:
        form = _form(model_admin, request)
        context: dict[str, Any] = {}
        if form.is_valid():
            try:
                context = _context(form)
            except InvalidInput as error:
                form.add_error(None, str(error))
        context = {
            **model_admin.admin_site.each_context(request),
            "title": gettext("Statistics"), "opts": model_admin.opts, "form": form,
            "query": request.GET.urlencode(), **context,
        }  # fmt: skip
        return TemplateResponse(request, "notify/statistics.html", context)

    return view


def as_csv(model_admin: ModelAdmin) -> View:
    """The same as a file, row by row while it is read."""

    def view(request: HttpRequest) -> Any:
        form = _form(model_admin, request)
        if not form.is_valid():
            return HttpResponse(str(form.errors.as_text()), status=400, content_type="text/plain")
        since, until = form.period_of()
        step = form.cleaned_data["step"]
        rows = statistics.csv_rows(step, since, until, **form.owner())
        name = f"notify-{step}-{timezone.localtime(until):%Y%m%d-%H%M}"
        return csv_response(name, rows)

    return view


def _form(model_admin: ModelAdmin, request: HttpRequest) -> ReportForm:
    if not model_admin.has_view_permission(request):
        raise PermissionDenied
    return ReportForm(request.GET)


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
    step: statistics.Step, since: datetime, until: datetime, biz: int | None
) -> list[tuple[BizReceive, statistics.Point, str]]:
    """Subscriptions with attempts, those with most failures first."""
    found = statistics.by_subscription(step, since, until, biz=biz)
    order = sorted(found, key=lambda pk: (-found[pk].failed, -found[pk].delivered))
    rows = BizReceive.objects.select_related("biz", "receive").in_bulk(order[:_MOST_SUBSCRIPTIONS])
    return [
        (rows[pk], found[pk], cells.percent(found[pk].success_share)) for pk in order if pk in rows
    ]
