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


def _view(id: str, name: str) -> Callable[[HttpRequest], HttpResponse]:
    """A view of `views`, which is loaded only where there is a provider."""

    def view(request: HttpRequest) -> HttpResponse:
        if id not in settings.SOCIALACCOUNT_PROVIDERS:
            raise Http404
        views: Any = import_module("msgplatform.company.single_sign_on.views")
        answer: HttpResponse = getattr(views, name)(request, id)
        return answer

    return view


urlpatterns = [
    *(path(f"{_OWN}{id}", _view(id, "log_in"), name=f"{id}-login") for id in PROVIDERS),
    *(path(f"{_OWN}{id}/link", _view(id, "link"), name=f"{id}-link") for id in PROVIDERS),
    # Names that the library uses.
    *(
        path(f"{_OWN}{id}/callback", _view(id, "callback"), name=f"{id}_callback")
        for id in PROVIDERS
    ),
    path(f"{_OWN}company/confirm", _view("company", "confirm"), name="company-confirm"),
    path(f"{_OWN}company/signed-out", _view("company", "signed_out"), name="company-signed-out"),
    path(
        f"{_OWN}company/backchannel-logout",
        csrf_exempt(_view("company", "backchannel_logout")),
        name="company-backchannel-logout",
    ),
]
