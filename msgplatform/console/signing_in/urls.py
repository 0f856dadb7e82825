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

PROVIDERS = ("company", "feishu", "dingtalk")


def _view(id: str, name: str) -> Callable[[HttpRequest], HttpResponse]:
    """A view of `provider.views`, which is loaded where there is a provider only."""

    def view(request: HttpRequest) -> HttpResponse:
        if id not in settings.SOCIALACCOUNT_PROVIDERS:
            raise Http404
        views: Any = import_module("msgplatform.console.signing_in.provider.views")
        answer: HttpResponse = getattr(views, name)(request, id)
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
    path("link", emergency.log_in, name="login-link"),
    *(path(id, _view(id, "log_in"), name=f"{id}-login") for id in PROVIDERS),
    *(path(f"{id}/link", _view(id, "link"), name=f"{id}-link") for id in PROVIDERS),
    # The library knows these names.
    *(path(f"{id}/callback", _view(id, "callback"), name=f"{id}_callback") for id in PROVIDERS),
    path("company/confirm", _view("company", "confirm"), name="company-confirm"),
    path("company/signed-out", _view("company", "signed_out"), name="company-signed-out"),
    path(
        "company/backchannel-logout",
        csrf_exempt(_view("company", "backchannel_logout")),
        name="company-backchannel-logout",
    ),
]
