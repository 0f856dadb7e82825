"""Gateways: the addresses and settings of the operator's SMGs, and the present state of each.

Accounts: the number, the gateways and the limits with which a business system sends. And the test
SMS: one text to one number over a chosen gateway, through the normal intake; its page shows what
becomes of it, step by step.
"""

import secrets
from functools import partial
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy as _, ngettext
from msgspec.structs import replace

from gateway import codes, notifications
from gateway.api import trials
from gateway.connections import sms_redis
from gateway.intake.request import MAX_TEXT
from gateway.lifecycle import keys
from gateway.messages.page import page as message_page_of
from gateway.models import SgipMt, SmsAccount, SmsGateway
from gateway.monitor import metrics
from gateway.setup import Account, Gateway
from msgplatform.core import logging, personal
from msgplatform.core.connections import RedisError
from msgplatform.core.durations import age
from msgplatform.core.errors import Conflict, OutcomeUnknown, Unavailable
from msgplatform.doors.admin import (
    AdminPage,
    PasswordInput,
    PlainList,
    ResourceAdmin,
    Select,
    Textarea,
    TextInput,
    audit,
    cells,
    sees_personal,
)
from msgplatform.doors.admin.pages import send_form, show_page

log = logging.get(__name__)

_SLUG_ERRORS = {"invalid": _("Use letters, digits, hyphens and underscores, no spaces.")}
_PASSWORD = {
    "strip": False,
    "error_messages": {"required": _("Give a password.")},
    "widget": PasswordInput(attrs={"autocomplete": "new-password"}, render_value=False),
}


class GatewayList(PlainList):
    """Reads the state of the gateways, for all rows of a page at once."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        try:
            gauges = metrics.read_gauges()
        except RedisError as error:
            log.warning("gauges_unreadable", why=str(error)[:200])
            messages.warning(
                request, gettext("The SMS Redis does not answer: links and queues are unknown.")
            )
            gauges = None
        queues = {queue.gateway.pk: queue for queue in gauges.queues} if gauges else {}
        for row in self.result_list:
            row.queue = queues.get(row.pk)
            row.links = [s for s in gauges.links if s.gateway == row.pk] if gauges else None


@admin.register(SmsGateway)
class SmsGatewayAdmin(ResourceAdmin):
    resource = Gateway
    list_class = GatewayList
    field_options = {
        "name": {"error_messages": _SLUG_ERRORS},
        "operator": {"error_messages": _SLUG_ERRORS},
        "login_password": _PASSWORD,
        "smg_login_password": _PASSWORD,
    }
    list_display = [
        "name", "address", cells.state, "up", "pending", "oldest", "speed", "priority",
    ]  # fmt: skip
    list_filter = ["enabled"]
    list_before_template = "admin/gateway/gateways_bar.html"
    search_fields = ["name", "host"]
    search_help_text = _("Name or host")
    readonly_fields = ["created_at"]

    address = cells.column(_("address"), lambda row: row.address)

    @admin.display(description=_("links"))
    def up(self, row: Any) -> SafeString:
        """Connections from us to the SMG and from the SMG to us; below them the problems."""
        if row.links is None:
            return cells.unknown()
        problems = list(dict.fromkeys(link.problem for link in row.links if link.problem))
        working = [link.kind for link in row.links if not link.problem]
        outgoing, incoming = working.count("submit"), working.count("report")
        if not outgoing and row.enabled:
            why = problems or [gettext("no sender reports a connection")]
            return cells.mark(gettext("down"), "bad", below="; ".join(why))
        tone = "warn" if problems else "good" if outgoing else "plain"
        text = gettext("%(ours)d out, %(theirs)d in") % {"ours": outgoing, "theirs": incoming}
        title = ", ".join((
            ngettext("%d connection to the SMG", "%d connections to the SMG", outgoing) % outgoing,
            ngettext("%d from the SMG", "%d from the SMG", incoming) % incoming,
        ))  # fmt: skip
        return cells.mark(text, tone, title, below="; ".join(problems))

    @admin.display(description=_("waiting"))
    def pending(self, row: Any) -> str:
        if row.queue is None:
            return cells.unknown()
        return str(row.queue.pending + row.queue.claimed)

    @admin.display(description=_("oldest"))
    def oldest(self, row: Any) -> str:
        seconds = row.queue.oldest_seconds if row.queue else None
        return cells.NOTHING if seconds is None else age(seconds)

    speed = cells.column(
        _("speed limit"), lambda row: cells.per_second(row.speed_limit), "speed_limit"
    )


REFERENCE = "test from the console"
PERMISSION = "gateway.change_sgipmt"  # the permission of people who may resend
_RENEWED_SECONDS = 2
_SENTENCES = {
    Conflict: _("This form was sent before, with other values. Open it anew."),
    Unavailable: _("The SMS Redis does not answer; nothing was sent."),
    OutcomeUnknown: _("The SMS Redis does not answer; the message may have been sent."),
}


class TestSmsForm(forms.Form):
    """The text, its recipient and its way."""

    __test__ = False  # pytest takes the name for a test's

    account = forms.ModelChoiceField(
        SmsAccount.objects.filter(enabled=True, biz__enabled=True).order_by("name"),
        label=_("Account"),
        widget=Select,
        help_text=_("Its SP number, signature and fees are used, and its daily limit counts it"),
    )
    gateway = forms.ModelChoiceField(
        SmsGateway.objects.filter(enabled=True).order_by("name"),
        label=_("Gateway"),
        required=False,
        empty_label=_("the one that fits the number"),
        widget=Select,
    )
    to = forms.CharField(
        label=_("Number"),
        max_length=32,
        widget=TextInput({"inputmode": "tel", "autocomplete": "off"}),
        help_text=_("Such as 13800000000: it gets a real message"),
    )
    text = forms.CharField(
        label=_("Text"), max_length=MAX_TEXT, widget=Textarea({"rows": 3}), strip=False
    )
    # The form's key: sending the form again makes no second message.
    key = forms.CharField(max_length=64, widget=forms.HiddenInput)


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
        # None means that the number is unknown, and 0 that there are none.
        for number, row in enumerate(rows):
            row.spent = None if counts is None else int(counts[number] or 0)
        self.result_list = rows


@admin.register(SmsAccount)
class SmsAccountAdmin(ResourceAdmin):
    resource = Account
    list_class = AccountList
    limited_views = frozenset({"changelist_view", "change_view"})
    form_fields = {
        "fee_type": partial(_Code, choices=codes.FEE_TYPES),
        "agent_flag": partial(_Code, choices=codes.AGENT_FLAGS),
        "morelateto_mt_flag": partial(_Code, choices=codes.MT_FLAGS),
    }
    field_options = {"name": {"error_messages": _SLUG_ERRORS}}
    list_display = ["name", "system", cells.state, "sp_number", "usual", "today", "created_at"]
    list_filter = ["enabled", "biz"]
    list_select_related = ["biz"]
    search_fields = ["name", "sp_number", "biz__name", "biz__title"]
    search_help_text = _("Name, SP number or business system")
    autocomplete_fields = ["biz", "gateways"]
    further_pages = [AdminPage("test/", "sms_test", "test_view")]

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        if obj.report_batches and not notifications.is_taken(notifications.REPORTS, obj.biz_id):
            words = gettext("No subscription of %(system)s takes %(type)s: nobody gets the Reports")
            messages.warning(request, words % {"type": notifications.REPORTS, "system": obj.biz})
        name = settings.SMS_DEFAULT_ACCOUNT
        if name and not SmsAccount.objects.filter(name=name, enabled=True).exists():
            words = gettext("SMS_DEFAULT_ACCOUNT names %s, which is no enabled account: MOs that "
                            "belong to no other account are archived only")  # fmt: skip
            messages.warning(request, words % name)

    def test_view(self, request: HttpRequest) -> HttpResponse:
        """GET shows the form, and the message that the address names; POST sends."""
        if not request.user.has_perm(PERMISSION):
            raise PermissionDenied
        start = {"text": gettext("A test message"), "key": f"console-{secrets.token_hex(12)}"}
        form = TestSmsForm(request.POST or None, initial=start)
        message_id = send_form(form, lambda values: trials.send(
            values["account"], values["gateway"], values["to"], values["text"], REFERENCE,
            partial(audit, request), values["key"],
        ), _SENTENCES)  # fmt: skip
        if message_id:
            return redirect(f"{reverse('admin:sms_test')}?message={message_id}")
        live = "_live" if "live" in request.GET else ""  # the part that changes alone
        return show_page(
            self, request, f"admin/gateway/test_sms{live}.html", gettext("Test SMS"),
            form=form, may_choose=True,
            **_describe_message(request.GET.get("message", ""), sees_personal(request)),
        )  # fmt: skip

    system = cells.column(_("system"), lambda row: str(row.biz), "biz__name")

    @admin.display(description=_("default"), ordering="is_default")
    def usual(self, row: SmsAccount) -> str:
        return cells.mark(gettext("default"), "plain") if row.is_default else cells.NOTHING

    @admin.display(description=_("today, of its limit"))
    def today(self, row: Any) -> str:
        """Messages are counted only for an account with a limit."""
        if not row.daily_limit:
            return cells.NOTHING
        if row.spent is None:
            return cells.unknown()
        is_full = row.spent >= row.daily_limit
        return cells.mark(f"{row.spent} / {row.daily_limit}", "bad" if is_full else "plain")


def _describe_message(message_id: str, is_clear: bool) -> dict[str, Any]:
    """The page of a test message, and the seconds until the next look; 0: the message has ended."""
    if not message_id:
        return {}
    try:
        message_page = message_page_of(message_id)
    except Unavailable as error:
        return {"notice": str(error), "seconds": _RENEWED_SECONDS}
    # The first step is that it was accepted, with its reference.
    if message_page is None or message_page.timeline[0].detail != REFERENCE:
        return {"notice": gettext("There is no such message; it may have been deleted.")}
    # "accepted" is also the name of an ending.
    is_ended = any(entry.state in SgipMt.Final.values for entry in message_page.timeline[1:])
    if not is_clear:
        message_page = replace(message_page, title=personal.mask_sentence(message_page.title))
    return {"outcome": message_page, "seconds": 0 if is_ended else _RENEWED_SECONDS}
