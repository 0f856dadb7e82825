"""Accounts: as what a business system sends, over which gateways, how much."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db import transaction
from django.forms import ModelForm
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from gateway.admin import cells
from gateway.admin.fields import LinesField
from gateway.lifecycle import keys
from gateway.models import SmsAccount
from msgplatform.admin import UndeletableAdmin, audit
from msgplatform.core.connections import RedisError, sms_redis

_LONGEST_NUMBER = 21


class AccountForm(forms.ModelForm):
    keywords = LinesField(
        r".{1,40}",
        _("at most 40 characters"),
        label=_("Keywords"),
        help_text=_("An MO to a shared number that begins with one of these is ours, one a line."),
    )

    class Meta:
        model = SmsAccount
        fields = [
            "biz", "name", "enabled", "is_default", "sp_number", "extension_digits", "keywords",
            "gateways", "corp_id", "service_type", "charge_number", "fee_type", "fee_value",
            "given_value", "agent_flag", "morelateto_mt_flag", "report_flag", "signature",
            "daily_limit", "recipients_limit",
        ]  # fmt: skip

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        digits = cleaned.get("extension_digits") or 0
        if len(cleaned.get("sp_number") or "") + digits > _LONGEST_NUMBER:
            self.add_error("extension_digits", gettext("With the SP number at most 21 digits."))
        if cleaned.get("is_default") and (biz := cleaned.get("biz")):
            others = SmsAccount.objects.filter(biz=biz, is_default=True).exclude(
                pk=self.instance.pk
            )
            if other := others.first():
                self.add_error(
                    "is_default", gettext("%s is this system's default already.") % other
                )
        return cleaned


class AccountList(ChangeList):
    """Reads what was sent today, for all accounts that are shown at once."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows = list(self.result_list)
        today = timezone.localdate().isoformat()
        names = [keys.spent(row.pk, today) for row in rows]
        try:
            spent: Any = sms_redis().mget(names) if names else []
        except RedisError:
            spent = [None] * len(rows)
        for row, count in zip(rows, spent, strict=True):
            row.spent = int(count or 0)
        self.result_list = rows


@admin.register(SmsAccount)
class SmsAccountAdmin(UndeletableAdmin):
    form = AccountForm
    list_display = ["name", "system", "state", "sp_number", "is_default", "today", "created_at"]
    list_filter = ["enabled", "biz"]
    list_select_related = ["biz"]
    search_fields = ["name", "sp_number", "biz__name"]
    autocomplete_fields = ["biz", "gateways"]
    fieldsets = [
        (None, {"fields": ["biz", "name", "enabled", "is_default"]}),
        (_("Numbers"), {"fields": ["sp_number", "extension_digits", "keywords", "gateways"]}),
        (
            _("What the operator is told"),
            {"fields": ["corp_id", "service_type", "charge_number", "fee_type", "fee_value",
                        "given_value", "agent_flag", "morelateto_mt_flag", "report_flag",
                        "signature"]},
        ),
        (_("Limits"), {"fields": ["daily_limit", "recipients_limit"]}),
    ]  # fmt: skip

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return AccountList

    def save_model(
        self, request: HttpRequest, obj: SmsAccount, form: ModelForm, change: bool
    ) -> None:
        with transaction.atomic():
            super().save_model(request, obj, form, change)
            action = "sms_account_changed" if change else "sms_account_created"
            audit(request, action, obj.name, fields=sorted(form.changed_data))

    @admin.display(description=_("system"), ordering="biz__name")
    def system(self, row: SmsAccount) -> str:
        return str(row.biz)

    @admin.display(description=_("state"))
    def state(self, row: SmsAccount) -> str:
        if row.enabled:
            return cells.mark(gettext("enabled"), "good")
        return cells.mark(gettext("switched off"), "plain")

    @admin.display(description=_("today"))
    def today(self, row: Any) -> str:
        """Of its limit; without one nothing is counted as it comes in."""
        if not row.daily_limit:
            return cells.NOTHING
        full = row.spent >= row.daily_limit
        return cells.mark(f"{row.spent} / {row.daily_limit}", "bad" if full else "plain")
