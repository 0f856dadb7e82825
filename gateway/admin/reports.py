"""Statistics per day: of everything, of a gateway or of an account; page and CSV."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, timedelta
from typing import Any

from django import forms
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from gateway.admin import codes
from gateway.models import SgipMt, SmsAccount, SmsGateway
from gateway.monitor import statistics
from msgplatform.admin import ModelAdmin, Select, cells, report

_PERIODS = {
    "7d": (7, _("7 days")),
    "30d": (30, _("30 days")),
    "90d": (90, _("90 days")),
    "365d": (365, _("a year")),
}
_OF_WHOM = ("gateways", "accounts", "systems", "sp_numbers")


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


def page(model_admin: ModelAdmin) -> report.View:
    """Sums, a table of the days, and who it was."""
    return report.page(model_admin, ReportForm, "admin/gateway/statistics.html", page_context)


def as_csv(model_admin: ModelAdmin) -> report.View:
    return report.as_csv(model_admin, ReportForm, csv_file)


def csv_file(form: ReportForm) -> tuple[str, Iterable[list[str]]]:
    name = f"sms-{form.since():%Y%m%d}-{timezone.localdate():%Y%m%d}"
    return name, statistics.csv_rows(form.since(), **form.subject())


def page_context(form: ReportForm) -> dict[str, Any]:
    found = statistics.of(form.since(), **form.subject())
    context: dict[str, Any] = {
        "found": found,
        "share": cells.percent(found.total.success),
        "labels": [final.label for final in SgipMt.Final],
        "errors": [
            (code, codes.meaning_of_result(code) if code else text, count)
            for code, text, count in found.errors
        ],
    }
    for name in ("days", *_OF_WHOM):
        lines = getattr(found, name)
        context[name] = [(line, cells.percent(line.success)) for line in lines]
    # Of one gateway or account there is nothing to compare it with.
    if any(form.subject().values()):
        context |= {name: [] for name in _OF_WHOM}
    return context
