"""The views to the provider and back. A fault of the provider never raises an error in them."""

from collections.abc import Callable
from functools import wraps
from http import HTTPStatus
from typing import Any

import requests
from allauth.socialaccount.adapter import get_adapter
from allauth.socialaccount.providers import registry
from allauth.socialaccount.providers.base.constants import AuthProcess
from allauth.socialaccount.providers.dingtalk.provider import DingTalkProvider
from allauth.socialaccount.providers.feishu.provider import FeishuProvider
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView
from django.contrib import messages
from django.contrib.admin.views.decorators import staff_member_required
from django.db import IntegrityError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from msgplatform.company.signing_in import accounts
from msgplatform.company.single_sign_on import guarded, logout
from msgplatform.company.single_sign_on.company import ID, CompanyProvider, exact_uid
from msgplatform.company.single_sign_on.tokens import Refused
from msgplatform.company.single_sign_on.trouble import refuse_answer
from msgplatform.core import logging
from msgplatform.core.daemons.timer import Every
from msgplatform.core.rates.shared import Rate
from msgplatform.doors.admin import confirmed, next_page
from msgplatform.doors.api.access import throttling
from msgplatform.doors.console.views.page import page, staff_view

log = logging.get(__name__)
_refusal_lines = Every(10.0)


# Feishu and DingTalk have no roles. Only the name of a person is stored, not the other data that
# they send, such as telephone numbers.
class Feishu(FeishuProvider):  # type: ignore[misc]  # has no types
    def extract_uid(self, data: dict[str, Any]) -> str:
        return exact_uid(super().extract_uid(data))

    def extract_extra_data(self, data: dict[str, Any]) -> dict[str, Any]:
        return {"name": data.get("name", "")}


class DingTalk(DingTalkProvider):  # type: ignore[misc]  # has no types
    def extract_uid(self, data: dict[str, Any]) -> str:
        return exact_uid(super().extract_uid(data))

    def extract_extra_data(self, data: dict[str, Any]) -> dict[str, Any]:
        return {"name": data.get("nick", "")}


for _class in (CompanyProvider, DingTalk, Feishu):
    registry.register(_class)

# Anybody can begin sign-ins, and each asks the provider: the maximum for an office in a minute.
_SIGN_INS = Rate(300, 60)
# Errors of the library and of this code for a document or a token of a wrong form.
_MALFORMED = (AttributeError, KeyError, TypeError, ValueError)
View = Callable[[HttpRequest, str], HttpResponse]


def _exchange(view: View) -> View:
    """A view that calls the provider, within its time limit, and with a page for each error."""

    @never_cache
    @wraps(view)
    def wrapper(request: HttpRequest, provider_id: str) -> HttpResponse:
        try:
            for origin, rate in throttling.origins(request, _SIGN_INS):
                if throttling.seconds_to_wait(f"sign-in:begun:{origin}", rate):
                    raise guarded.Unreachable("busy", "Too many sign-ins of one address.")
            with guarded.exchange():
                return view(request, provider_id)
        except (OAuth2Error, requests.RequestException) as error:
            return refuse_answer(request, error, provider_id)
        except IntegrityError:  # two first sign-ins of the same person at once
            return refuse_answer(request, Refused("state", "twice at once"), provider_id)
        except _MALFORMED as error:
            log.warning("sign_in_malformed", exc_info=True)
            return refuse_answer(request, error, provider_id)

    return wrapper


@require_GET
@_exchange
def log_in(request: HttpRequest, provider_id: str) -> HttpResponse:
    return _leave(request, provider_id, AuthProcess.LOGIN, next_page(request))


@staff_view("GET")
@_exchange
def confirm(request: HttpRequest, provider_id: str) -> HttpResponse:
    """A new sign-in there proves who the person is: the provider is told to ask for it."""
    parameters = {"prompt": "login", "max_age": "0"}
    return _leave(request, provider_id, AuthProcess.REDIRECT, next_page(request), parameters)


@staff_member_required
@confirmed
def link(request: HttpRequest, provider_id: str) -> HttpResponse:
    """A signed-in person adds their account at a provider. The form is sent from here. Its answer
    is a page with a link, because the browser lets no form lead to another site."""
    if accounts.is_left_to_company(request.user, provider_id):
        return accounts.refuse_left_to_company(request, request.user, provider_id)
    if request.method == "POST":
        return _begin_link(request, provider_id)
    return _link_page(request, provider_id)


@_exchange
def _begin_link(request: HttpRequest, provider_id: str) -> HttpResponse:
    answer = _leave(request, provider_id, AuthProcess.CONNECT, reverse("console:sessions"))
    return _link_page(request, provider_id, answer.headers["Location"])


def _link_page(request: HttpRequest, provider_id: str, continue_url: str = "") -> HttpResponse:
    title = _("Link your account at %(name)s") % {"name": accounts.provider_names()[provider_id]}
    context = {"continue_url": continue_url, "is_company": provider_id == ID}
    return page(request, "link_account.html", title, **context)


@require_GET
@_exchange
def callback(request: HttpRequest, provider_id: str) -> HttpResponse:
    adapter = _provider(request, provider_id).get_oauth2_adapter(request)
    answer: HttpResponse = OAuth2CallbackView.adapter_view(adapter)(request)
    return answer


@require_GET
def signed_out(request: HttpRequest, provider_id: str) -> HttpResponse:
    """The page to which the provider redirects after it has signed a person out."""
    messages.info(request, _("You are signed out, here and at the provider."))
    return redirect("admin:login")


@require_POST
@never_cache
def backchannel_logout(request: HttpRequest, provider_id: str) -> HttpResponse:
    """The provider itself calls this when a person signs out there."""
    token = request.POST.get("logout_token", "")
    adapter = _provider(request, provider_id).get_oauth2_adapter(request)
    has_keys = adapter.take_kept_keys()
    try:
        # A stranger's token must not make the platform ask the provider, nor take a place.
        if has_keys:
            try:
                count = logout.end_sessions(adapter, token)
            except Refused as error:
                if error.reason != "signature" or not adapter.drop_kept_keys():
                    raise
                has_keys = False
        if not has_keys:
            with guarded.exchange(is_logout=True):
                count = logout.end_sessions(adapter, token)
    except requests.RequestException as error:  # of the provider, never of the token
        log.warning("backchannel_logout_waits", error=getattr(error, "kind", type(error).__name__))
        # Most providers repeat a call after this answer, and none after a 400.
        return HttpResponse(status=HTTPStatus.SERVICE_UNAVAILABLE, headers={"Retry-After": "5"})
    except (OAuth2Error, *_MALFORMED) as error:
        if _refusal_lines.take():  # a stranger can send a thousand of them a second
            log.warning("backchannel_logout_refused", error=type(error).__name__)
        return HttpResponse(status=HTTPStatus.BAD_REQUEST)
    log.info("backchannel_logout", sessions=count)
    return HttpResponse()


def _provider(request: HttpRequest, provider_id: str) -> Any:
    return get_adapter(request).get_provider(request, provider_id)


def _leave(
    request: HttpRequest,
    provider_id: str,
    process: str,
    next_url: str,
    parameters: dict[str, str] | None = None,
) -> HttpResponse:
    answer: HttpResponse = _provider(request, provider_id).redirect(
        request, process, auth_params=parameters or {},
        next_url=next_url or reverse("console:overview"),
    )  # fmt: skip
    return answer
