"""The emergency way in: a link that `manage.py login_link` prints, for when the provider is away or
a password is lost. A second factor is asked for as at each login."""

from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

from allauth.account.utils import perform_login
from django.contrib import admin
from django.contrib.auth.models import User
from django.core import signing
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache

from msgplatform.company.signing_in.refusal import refuse
from msgplatform.models import AuditLog

LINK_SECONDS = 15 * 60
_SALT = "msgplatform.login_link"


def path(user: User) -> str:
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
def log_in(request: HttpRequest) -> HttpResponse:
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
