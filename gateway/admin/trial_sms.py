"""A test SMS: one text to one number over a chosen gateway, through the normal intake; its page
shows what becomes of it, step by step."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from django import forms
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from gateway.intake import trial_sms
from gateway.intake.request import MAX_TEXT
from gateway.messages.page import page as message_page_of
from gateway.models import SgipMt, SmsAccount, SmsGateway
from msgplatform.core import personal
from msgplatform.core.errors import Conflict, OutcomeUnknown, Unavailable
from msgplatform.doors.admin import ModelAdmin, Select, Textarea, TextInput, audit, sees_personal
from msgplatform.doors.admin.pages import send_form, show_page

REFERENCE = "test from the console"
PERMISSION = "gateway.change_sgipmt"  # that of people who may resend
_RENEWED_SECONDS = 2
_SENTENCES = {
    Conflict: _("This form was sent before, with other values. Open it anew."),
    Unavailable: _("The SMS Redis does not answer; nothing was sent."),
    OutcomeUnknown: _("The SMS Redis does not answer; the message may have been sent."),
}


class TestSmsForm(forms.Form):
    """The text, its recipient and its way."""

    __test__ = False  # to pytest the name looks like a test's

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
    # Makes the message one, however often the form is sent.
    key = forms.CharField(max_length=64, widget=forms.HiddenInput)


def page(model_admin: ModelAdmin) -> Callable[[HttpRequest], HttpResponse]:
    """GET shows the form, and the message that the address names; POST sends."""

    def view(request: HttpRequest) -> HttpResponse:
        if not request.user.has_perm(PERMISSION):
            raise PermissionDenied
        start = {"text": gettext("A test message"), "key": f"console-{secrets.token_hex(12)}"}
        form = TestSmsForm(request.POST or None, initial=start)
        message = send_form(form, lambda values: trial_sms.send(
            values["account"], values["gateway"], values["to"], values["text"], REFERENCE,
            partial(audit, request), values["key"],
        ), _SENTENCES)  # fmt: skip
        if message:
            return redirect(f"{reverse('admin:sms_test')}?message={message}")
        live = "_live" if "live" in request.GET else ""  # the part that changes alone
        return show_page(
            model_admin, request, f"admin/gateway/test_sms{live}.html", gettext("Test SMS"),
            form=form, may_choose=True,
            **_followed(request.GET.get("message", ""), sees_personal(request)),
        )  # fmt: skip

    return view


def _followed(message: str, clear: bool) -> dict[str, Any]:
    """The page of a test message, and the seconds until the next look; 0: the message has ended."""
    if not message:
        return {}
    try:
        message_page = message_page_of(message)
    except Unavailable as error:
        return {"notice": str(error), "seconds": _RENEWED_SECONDS}
    # The first step is that it was accepted, with its reference.
    if message_page is None or message_page.timeline[0].detail != REFERENCE:
        return {"notice": gettext("There is no such message; it may have been deleted.")}
    # "accepted" is an ending's name as well.
    is_ended = any(entry.state in SgipMt.Final.values for entry in message_page.timeline[1:])
    if not clear:
        message_page = replace(message_page, title=personal.in_sentence(message_page.title))
    return {"outcome": message_page, "seconds": 0 if is_ended else _RENEWED_SECONDS}
