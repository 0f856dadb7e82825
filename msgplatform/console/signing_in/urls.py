"""The pages of django-allauth that the console has, under names that the library knows. Its
sign-up, its password reset and its e-mail pages are not among them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from allauth.account.views import reauthenticate
from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, URLResolver, include, path
from django.views.decorators.csrf import csrf_exempt
from django.views.generic import RedirectView

from msgplatform.console.signing_in import emergency
from msgplatform.console.signing_in.logout import log_out


def _company(name: str) -> Callable[[HttpRequest], HttpResponse]:
    """A view of `provider.views`, which is loaded where there is a provider only."""

    def view(request: HttpRequest) -> HttpResponse:
        if not settings.OIDC_ISSUER:
            raise Http404
        views: Any = import_module("msgplatform.console.signing_in.provider.views")
        answer: HttpResponse = getattr(views, name)(request)
        return answer

    return view


urlpatterns: list[URLPattern | URLResolver] = [
    path(
        "",
        RedirectView.as_view(pattern_name="admin:login", query_string=True),
        name="account_login",
    ),
    path("out", log_out, name="account_logout"),
    path("password", reauthenticate, name="account_reauthenticate"),
    path("second-factor/", include("allauth.mfa.urls")),
    path("link/<str:token>", emergency.log_in, name="login-link"),
    path("company", _company("log_in"), name="company-login"),
    path("company/callback", _company("callback"), name="company-callback"),
    path("company/confirm", _company("confirm"), name="company-confirm"),
    path("company/link", _company("link"), name="company-link"),
    path("company/signed-out", _company("signed_out"), name="company-signed-out"),
    path(
        "company/backchannel-logout",
        csrf_exempt(_company("backchannel_logout")),
        name="company-backchannel-logout",
    ),
]
