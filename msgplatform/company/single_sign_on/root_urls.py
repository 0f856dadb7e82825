"""The pages of the company's provider and of chats, by names that django-allauth knows."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

PROVIDERS = ("company", "feishu", "dingtalk")
_OWN = "console/sign-in/"


def _view(provider_id: str, view_name: str) -> Callable[[HttpRequest], HttpResponse]:
    """A view of `views`, which is loaded only where there is a provider."""

    def view(request: HttpRequest) -> HttpResponse:
        if provider_id not in settings.SOCIALACCOUNT_PROVIDERS:
            raise Http404
        views: Any = import_module("msgplatform.company.single_sign_on.views")
        answer: HttpResponse = getattr(views, view_name)(request, provider_id)
        return answer

    return view


urlpatterns = [
    *(path(f"{_OWN}{name}", _view(name, "log_in"), name=f"{name}-login") for name in PROVIDERS),
    *(path(f"{_OWN}{name}/link", _view(name, "link"), name=f"{name}-link") for name in PROVIDERS),
    # Names that the library uses.
    *(
        path(f"{_OWN}{name}/callback", _view(name, "callback"), name=f"{name}_callback")
        for name in PROVIDERS
    ),
    path(f"{_OWN}company/confirm", _view("company", "confirm"), name="company-confirm"),
    path(f"{_OWN}company/signed-out", _view("company", "signed_out"), name="company-signed-out"),
    path(
        f"{_OWN}company/backchannel-logout",
        csrf_exempt(_view("company", "backchannel_logout")),
        name="company-backchannel-logout",
    ),
]
