"""Accounts: the number, the gateways and the limits with which a business system sends."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.http import HttpRequest
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from gateway import codes, notifications
from gateway.admin import trial_sms
from gateway.connections import sms_redis
from gateway.lifecycle import keys
from gateway.models import SmsAccount, validators
from msgplatform.admin import PlainList, Select, UndeletableAdmin, cells
from msgplatform.admin.fields import LinesField
from msgplatform.core.connections import RedisError


class CodeField(forms.TypedChoiceField):
    """A number of SGIP's, chosen by its meaning; at first the column's default."""

    def __init__(self, choices: codes.Choices, column: str, **options: Any) -> None:
        default = getattr(SmsAccount(), column)
        super().__init__(choices=choices, coerce=int, initial=default, widget=Select, **options)


class AccountForm(forms.ModelForm):  # type: ignore[type-arg]  # it takes none at run time
    fee_type = CodeField(codes.FEE_TYPES, "fee_type", label=_("Fee type"))
    agent_flag = CodeField(
        codes.AGENT_FLAGS, "agent_flag", label=_("Agent flag"),
        help_text=_("How the operator books the fee"),
    )  # fmt: skip
    morelateto_mt_flag = CodeField(
        codes.MT_FLAGS, "morelateto_mt_flag", label=_("MT flag"),
        help_text=_("Why messages are sent; 2 for notices"),
    )  # fmt: skip
    keywords = LinesField(
        check=validators.keyword,
        label=_("Keywords"),
        help_text=_("An MO to a shared number that begins with one of these is ours, one a line."),
    )

    class Meta:
        model = SmsAccount
        fields = [
            "biz", "name", "enabled", "is_default", "sp_number", "extension_digits", "keywords",
            "gateways", "corp_id", "service_type", "charge_number", "fee_type", "fee_value",
            "given_value", "agent_flag", "morelateto_mt_flag", "report_flag", "signature",
            "report_batches", "daily_limit", "recipients_limit",
        ]  # fmt: skip
        help_texts = {
            "name": _("What a call says in `account`: letters, digits and hyphens"),
            "sp_number": _("What recipients see as the sender; MOs to it are this account's"),
            "corp_id": _("Five digits, from the operator's contract"),
            "service_type": _("The operator's code for this service; at most 10 ASCII characters"),
            "charge_number": _(
                "21 zeros: we pay; empty: each recipient; or a number that begins with 86"
            ),
            "fee_value": _("In fen (0.01 yuan); of a month with fee type 3"),
            "given_value": _("Credit given to the recipient, in fen"),
            "recipients_limit": _("How many recipients one call may name"),
        }
        error_messages = {
            "name": {"invalid": _("Use letters, digits, hyphens and underscores, no spaces.")}
        }


class AccountList(PlainList):
    """Reads the numbers of messages sent today, for all accounts of a page at once."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows = list(self.result_list)
        today = timezone.localdate(timezone=timezone.get_default_timezone()).isoformat()
        names = [keys.spent(row.pk, today) for row in rows]
        try:
            counts: Any = sms_redis().mget(names) if names else []
        except RedisError:
            messages.warning(
                request, gettext("The SMS Redis does not answer: what was sent today is unknown.")
            )
            counts = None
        # None stands for an unknown number, which is not the same as 0.
        for number, row in enumerate(rows):
            row.spent = None if counts is None else int(counts[number] or 0)
        self.result_list = rows


@admin.register(SmsAccount)
class SmsAccountAdmin(UndeletableAdmin):
    audit_name = "sms_account"
    system_lookup = "biz"
    limited_views = frozenset({"changelist_view", "change_view"})
    form = AccountForm
    list_display = ["name", "system", "state", "sp_number", "usual", "today", "created_at"]
    list_filter = ["enabled", "biz"]
    list_select_related = ["biz"]
    search_fields = ["name", "sp_number", "biz__name", "biz__title"]
    search_help_text = _("Name, SP number or business system")
    autocomplete_fields = ["biz", "gateways"]
    fieldsets = [
        (None, {"fields": ["biz", "name", "enabled", "is_default"]}),
        (_("Numbers"), {"fields": ["sp_number", "extension_digits", "keywords", "gateways"]}),
        (
            _("What the operator gets"),
            {"fields": ["corp_id", "service_type", "charge_number", "fee_type", "fee_value",
                        "given_value", "agent_flag", "morelateto_mt_flag", "report_flag",
                        "signature"]},
        ),
        (_("What the business system gets"), {"fields": ["report_batches"]}),
        (_("Limits"), {"fields": ["daily_limit", "recipients_limit"]}),
    ]  # fmt: skip

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        if obj.report_batches and not notifications.is_taken(notifications.REPORTS, obj.biz_id):
            words = gettext("No subscription of %(system)s takes %(type)s: nobody gets the Reports")
            messages.warning(request, words % {"type": notifications.REPORTS, "system": obj.biz})

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(trial_sms.page(self))
        return [path("test/", view, name="sms_test"), *super().get_urls()]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[PlainList]:
        return AccountList

    @admin.display(description=_("system"), ordering="biz__name")
    def system(self, row: SmsAccount) -> str:
        return str(row.biz)

    @admin.display(description=_("state"))
    def state(self, row: SmsAccount) -> str:
        return cells.enabled(row.enabled)

    @admin.display(description=_("default"), ordering="is_default")
    def usual(self, row: SmsAccount) -> str:
        return cells.mark(gettext("default"), "plain") if row.is_default else cells.NOTHING

    @admin.display(description=_("today, of its limit"))
    def today(self, row: Any) -> str:
        """Only an account with a limit has its messages counted as they come in."""
        if not row.daily_limit:
            return cells.NOTHING
        if row.spent is None:
            return cells.unknown()
        full = row.spent >= row.daily_limit
        return cells.mark(f"{row.spent} / {row.daily_limit}", "bad" if full else "plain")
