"""Statistics per day: of everything, of a gateway or of an account; page and CSV.

Everything that was chosen is in the address, so that a page can be sent to a colleague.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

from django import forms
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from gateway.admin import codes
from gateway.models import SgipMt, SmsAccount, SmsGateway
from gateway.monitor import statistics
from msgplatform.admin import ModelAdmin, Select, cells, csv_response

View = Callable[[HttpRequest], Any]
_PERIODS = {
    "7d": (7, _("7 days")),
    "30d": (30, _("30 days")),
    "90d": (90, _("90 days")),
    "365d": (365, _("a year")),
}


class ReportForm(forms.Form):
    """What to show; everything has a default."""

    period = forms.ChoiceField(
        label=_("Period"),
        choices=[(key, title) for key, (_days, title) in _PERIODS.items()],
        required=False,
        widget=Select,
    )
    gateway = forms.ModelChoiceField(
        SmsGateway.objects.order_by("name"), label=_("Gateway"), required=False, widget=Select,
        empty_label=_("all"),
    )  # fmt: skip
    account = forms.ModelChoiceField(
        SmsAccount.objects.order_by("name"), label=_("Account"), required=False, widget=Select,
        empty_label=_("all"),
    )  # fmt: skip

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if cleaned.get("gateway") and cleaned.get("account"):
            self.add_error("account", gettext("Counts are kept for each alone: choose one."))
        return cleaned

    def since(self) -> date:
        days, _title = _PERIODS[self.cleaned_data["period"] or "7d"]
        return timezone.localdate() - timedelta(days=days - 1)

    def subject(self) -> dict[str, int | None]:
        chosen = {name: self.cleaned_data.get(name) for name in ("account", "gateway")}
        return {name: row.pk if row else None for name, row in chosen.items()}


def page(model_admin: ModelAdmin) -> View:
    """Sums, a table of the days, and who it was."""

    def view(request: HttpRequest) -> HttpResponse:
        form = _form(model_admin, request)
        context: dict[str, Any] = {}
        if form.is_valid():
            found = statistics.of(form.since(), **form.subject())
            context = {
                "found": found, "share": cells.percent(found.total.success),
                "of_gateway": form.cleaned_data["gateway"],
                "errors": [
                    (code, codes.meaning_of_result(code) if code else text, count)
                    for code, text, count in found.errors
                ],
            }  # fmt: skip
            for name in ("days", "gateways", "accounts"):
                context[name] = [
                    (line, cells.percent(line.success)) for line in getattr(found, name)
                ]
            if any(form.subject().values()):
                context["gateways"] = context["accounts"] = []
        context = {
            **model_admin.admin_site.each_context(request),
            "title": gettext("Statistics"), "opts": model_admin.opts, "form": form,
            "query": request.GET.urlencode(), "labels": [f.label for f in SgipMt.Final],
            **context,
        }  # fmt: skip
        return TemplateResponse(request, "admin/gateway/statistics.html", context)

    return view


def as_csv(model_admin: ModelAdmin) -> View:
    """The same as a file."""

    def view(request: HttpRequest) -> Any:
        form = _form(model_admin, request)
        if not form.is_valid():
            return HttpResponse(str(form.errors.as_text()), status=400, content_type="text/plain")
        name = f"sms-{form.since():%Y%m%d}-{timezone.localdate():%Y%m%d}"
        return csv_response(name, statistics.csv_rows(form.since(), **form.subject()))

    return view


def _form(model_admin: ModelAdmin, request: HttpRequest) -> ReportForm:
    if not model_admin.has_view_permission(request):
        raise PermissionDenied
    return ReportForm(request.GET)
