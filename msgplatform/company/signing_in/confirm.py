"""The way to the page that asks again who a person is (`admin/confirmation.py`)."""

from __future__ import annotations

from typing import Any

from allauth.account.adapter import get_adapter
from allauth.account.signals import authentication_step_completed
from django.contrib import messages
from django.contrib.admin.views.decorators import staff_member_required
from django.contrib.auth import logout
from django.contrib.auth.views import redirect_to_login
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme, urlencode
from django.utils.translation import gettext as _

from msgplatform.admin import confirmation
from msgplatform.company.signing_in import accounts
from msgplatform.company.signing_in.refusal import refuse


@staff_member_required
def confirm(request: HttpRequest) -> HttpResponseBase:
    """The page of the first way that this person has to prove who they are; people without any log
    in again."""
    next_url = request.GET.get("next", "")
    if not url_has_allowed_host_and_scheme(next_url, None):
        next_url = reverse("console:overview")
    if confirmation.is_recent(request):
        return redirect(next_url)
    methods = get_adapter(request).get_reauthentication_methods(request.user)
    if methods and methods[0]["id"] == accounts.CHAT:
        text = _("An account of a chat does not prove that it is you.")
        advice = _(
            "Ask the people who run this platform for a link to log in (manage.py login_link). "
            "Then set up a second factor: it proves it from then on."
        )
        who = request.user.get_username()
        return refuse(request, "chat_proves_nothing", text, advice=advice, who=who)
    if methods:
        return redirect(f"{methods[0]['url']}?{urlencode({'next': next_url})}")
    logout(request)
    messages.info(request, _("Log in once more, to confirm that it is you."))
    return redirect_to_login(next_url, reverse("admin:login"))


@receiver(authentication_step_completed, dispatch_uid="msgplatform.confirm")
def _record(sender: Any, request: HttpRequest, **detail: Any) -> None:
    if detail.get("reauthenticated"):
        confirmation.record(request)
