"""Accounts: the number, the gateways and the limits with which a business system sends."""

from __future__ import annotations

from functools import partial
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
from gateway.admin.gateways import SLUG_ERRORS
from gateway.connections import sms_redis
from gateway.lifecycle import keys
from gateway.models import SmsAccount
from gateway.setup import Account
from msgplatform.core.connections import RedisError
from msgplatform.doors.admin import PlainList, ResourceAdmin, Select, cells

# A number of SGIP's, chosen by its meaning.
_Code = partial(forms.TypedChoiceField, coerce=int, widget=Select)


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
class SmsAccountAdmin(ResourceAdmin):
    resource = Account
    limited_views = frozenset({"changelist_view", "change_view"})
    form_fields = {
        "fee_type": partial(_Code, choices=codes.FEE_TYPES),
        "agent_flag": partial(_Code, choices=codes.AGENT_FLAGS),
        "morelateto_mt_flag": partial(_Code, choices=codes.MT_FLAGS),
    }
    field_options = {"name": {"error_messages": SLUG_ERRORS}}
    list_display = ["name", "system", "state", "sp_number", "usual", "today", "created_at"]
    list_filter = ["enabled", "biz"]
    list_select_related = ["biz"]
    search_fields = ["name", "sp_number", "biz__name", "biz__title"]
    search_help_text = _("Name, SP number or business system")
    autocomplete_fields = ["biz", "gateways"]

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
