"""The pages of logging in and out, here and at the company's provider, and the way to the page that
asks again who a person is (`admin/confirmation.py`). The login is the theme's page, then what
follows a right password: `django-allauth` asks for a second factor, if the person has one.

The emergency way in is a link that `manage.py login_link` prints, for when the provider is away or
a password is lost. A second factor is asked for as at each login."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

from allauth.account.adapter import get_adapter
from allauth.account.signals import authentication_step_completed
from allauth.account.utils import perform_login
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.views.decorators import staff_member_required
from django.contrib.auth import logout
from django.contrib.auth.models import User
from django.contrib.auth.views import LoginView, redirect_to_login
from django.core import signing
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from msgplatform.company.signing_in import accounts
from msgplatform.company.signing_in.accounts import refuse
from msgplatform.company.signing_in.login import LoginForm
from msgplatform.doors.admin import confirmation, next_page
from msgplatform.models import AuditLog

LINK_SECONDS = 15 * 60
_SALT = "msgplatform.login_link"
# The provider's address to which people are redirected at logout; "" for sessions that did not
# begin there.
provider_addresses: list[Callable[[HttpRequest], str]] = []


class _LoginView(LoginView):
    template_name = "console/login.html"
    authentication_form = LoginForm

    def form_valid(self, form: Any) -> HttpResponse:
        answer: HttpResponse = perform_login(
            self.request, form.get_user(), redirect_url=self.get_success_url()
        )
        return answer

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        frame = {
            **admin.site.each_context(self.request),
            "title": _("Log in"),
            "subtitle": None,
            "app_path": self.request.get_full_path(),
            "username": self.request.user.get_username(),
            "has_passwords": settings.LOCAL_PASSWORDS,
            "providers": accounts.provider_names(),
            "next_page": self.get_redirect_url(),
        }
        return {**super().get_context_data(**kwargs), **frame}


@never_cache
def log_in(request: HttpRequest) -> HttpResponseBase:
    """Django's own view also redirects people who are signed in."""
    if request.method == "GET" and admin.site.has_permission(request):
        return redirect("admin:index")
    return _LoginView.as_view()(request)


def login_link(user: User) -> str:
    """The path of the page. The link works once and for LINK_SECONDS: a login, or another password,
    ends all links of the person."""
    token = signing.dumps([user.pk, _state(user)], salt=_SALT)
    # A query parameter, because logs have the path of a request and not its query.
    return f"{reverse('login-link')}?{urlencode({'token': token})}"


def _state(user: User) -> str:
    """A digest of the values that a login changes: the token must not contain a password's hash."""
    text = f"{user.last_login and user.last_login.isoformat()} {user.get_session_auth_hash()}"
    return signing.Signer(salt=_SALT).signature(text)


@never_cache
def log_in_by_link(request: HttpRequest) -> HttpResponse:
    """A page with a button: merely opening the link, as a preview does, does not use it up."""
    user = None
    with suppress(signing.BadSignature, TypeError, ValueError):
        pk, state = signing.loads(request.GET.get("token", ""), salt=_SALT, max_age=LINK_SECONDS)
        user = User.objects.filter(pk=pk, is_active=True).first()
    if user is None or _state(user) != state:
        text = _("This link no longer works: it serves once, within 15 minutes.")
        return refuse(request, "login_link", text)
    if request.method != "POST":
        context: dict[str, Any] = {**admin.site.each_context(request), "site_url": "",
                                   "person": user}  # fmt: skip
        return render(request, "console/login_link.html", context)
    AuditLog.record(user.get_username(), "login_link_used", user.get_username())
    answer: HttpResponse = perform_login(request, user, redirect_url=reverse("console:overview"))
    return answer


@require_POST
@never_cache
def log_out(request: HttpRequest) -> HttpResponse:
    """The theme's page. A session of the provider gets a page that leads there."""
    url = next(filter(None, (address(request) for address in provider_addresses)), "")
    if not url:
        return admin.site.logout(request)
    logout(request)
    text = _("Now the company's provider signs you out, too.")
    return _lead_to_provider(request, url, _("You are signed out"), text)


def _lead_to_provider(request: HttpRequest, url: str, title: str, text: str) -> HttpResponse:
    """A page that goes on to the provider by itself. A redirect would not arrive after a form: the
    browser lets no form lead to another site."""
    context = {**admin.site.each_context(request), "site_url": "", "continue_url": url,
               "title": title, "text": text}  # fmt: skip
    return render(request, "console/to_provider.html", context)


@staff_member_required
def confirm(request: HttpRequest) -> HttpResponseBase:
    """Lead to the page of the first proof that this person has. People without any proof log in
    again."""
    next_url = next_page(request) or reverse("console:overview")
    if confirmation.is_recent(request):
        return redirect(next_url)
    methods = get_adapter(request).get_reauthentication_methods(request.user)
    if methods and methods[0]["id"] == accounts.CHAT:
        text = _("An account of a chat does not prove that it is you.")
        advice, who = _(accounts.ASK_FOR_LINK), request.user.get_username()
        return refuse(request, "chat_proves_nothing", text, advice=advice, who=who)
    if methods:
        url = f"{methods[0]['url']}?{urlencode({'next': next_url})}"
        if methods[0]["id"] == "company":
            text = _("Now the company's provider asks who you are.")
            return _lead_to_provider(request, url, _("Confirm that it is you"), text)
        return redirect(url)
    logout(request)
    messages.info(request, _("Log in once more, to confirm that it is you."))
    return redirect_to_login(next_url, reverse("admin:login"))


@receiver(authentication_step_completed, dispatch_uid="msgplatform.confirm")
def _record(sender: Any, request: HttpRequest, **detail: Any) -> None:
    if detail.get("reauthenticated"):
        confirmation.record(request)
