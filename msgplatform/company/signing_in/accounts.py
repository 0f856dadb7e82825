"""django-allauth's accounts as this console has them: nobody signs up, addresses identify nobody,
and the platform's own rules say who is asked again; and the page of a refused person."""

from http import HTTPStatus
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.core import context
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _, gettext_noop

from msgplatform.core import logging
from msgplatform.core.rates.shared import Rate
from msgplatform.doors.admin import confirmation
from msgplatform.doors.api.access import throttling
from msgplatform.models import AuditLog

log = logging.get(__name__)

CHAT = "chat"
_FACTOR_STAGE = "allauth.mfa.stages.AuthenticateStage"
# Messages of the library that only say what the page shows.
_NOT_SHOWN = ("account/messages/logged_in.txt", "account/messages/logged_out.txt")
# Anybody can cause these entries, which are kept for ever: maximum of entries, in so many seconds.
_OF_ONE = Rate(20, 300)
_OF_ALL = Rate(200, 300)
# For people whose proof is not accepted.
ASK_FOR_LINK = gettext_noop(
    "Ask the people who run this platform for a link to log in (manage.py login_link). "
    "Then set up a second factor, which proves who you are from then on."
)


def provider_names() -> dict[str, str]:
    """Id → name for people, of each provider by which people sign in."""
    providers = settings.SOCIALACCOUNT_PROVIDERS.items()
    return {provider_id: options["APPS"][0]["name"] for provider_id, options in providers}


def refuse(
    request: HttpRequest,
    reason: str,
    text: str,
    *,
    advice: str = "",
    who: str = "",
    status: HTTPStatus = HTTPStatus.FORBIDDEN,
    **detail: Any,
) -> HttpResponse:
    """The page with `text`, and `advice` what to do. `reason` is a word for logs; `who` is the name
    of the person as far as it is known, `detail` goes into the audit log."""
    address = throttling.client_address(request)
    log.warning("sign_in_refused", reason=reason, address=address, **detail)
    # While Redis is unavailable nobody counts, and no entry is kept either.
    network = throttling.network_of(address)
    if throttling.is_within(f"sign-in:refused:{network}", _OF_ONE) and throttling.is_within(
        "sign-in:refused", _OF_ALL
    ):
        AuditLog.record(who or "-", "sign_in_refused", reason, **detail)
    context = {**admin.site.each_context(request), "site_url": "", "text": text, "advice": advice}
    return render(request, "console/sign_in_refused.html", context, status=status)


def is_left_to_company(user: Any, provider_id: str) -> bool:
    """True for a chat's account of a person whom the company's directory admits or locks out: such
    an account must not bypass the directory."""
    return provider_id != "company" and bool(settings.OIDC_ISSUER) and _comes_from_company(user)


def refuse_left_to_company(request: HttpRequest, user: Any, provider_id: str) -> HttpResponse:
    text = _("You sign in by %s: an account of a chat does not replace that.") % settings.OIDC_NAME
    return refuse(request, "left_to_company", text, who=user.get_username(), provider=provider_id)


def _comes_from_company(user: Any) -> bool:
    return bool(SocialAccount.objects.filter(user_id=user.pk, provider="company").exists())


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]  # has no types
    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def is_reauthentication_required(self, *, app: str, **kwargs: Any) -> bool:
        if confirmation.is_recent(context.request):
            return False
        # The library lets people without a password and a factor pass: at an open session, or with
        # a stolen account of a chat, somebody could set up a factor of their own.
        methods = self.get_reauthentication_methods(context.request.user)
        if not methods or methods[0]["id"] in (CHAT, "company"):
            raise ImmediateHttpResponse(confirmation.ask(context.request))
        return True

    def get_reauthentication_methods(self, user: Any) -> list[dict[str, Any]]:
        """People with a second factor use it as proof. The password is for the others."""
        methods: list[dict[str, Any]] = super().get_reauthentication_methods(user)
        by_factor = [method for method in methods if method["id"] != "reauthenticate"]
        if by_factor:
            return by_factor
        if settings.LOCAL_PASSWORDS and methods:
            return methods
        if settings.OIDC_ISSUER and _comes_from_company(user):
            text = _("Sign in again: %s") % settings.OIDC_NAME
            return [
                {"id": "company", "description": text, "url": reverse("company-confirm")},
            ]
        if SocialAccount.objects.filter(user_id=user.pk).exclude(provider="company").exists():
            # A chat's account proves nothing, and would only sign in again: the page says so.
            return [{"id": CHAT, "description": "", "url": reverse("console:confirm")}]
        return []

    def get_login_stages(self) -> list[str]:
        stages: list[str] = super().get_login_stages()
        if settings.OIDC_SECOND_FACTOR and getattr(self.request, "is_company_login", False):
            return [stage for stage in stages if stage != _FACTOR_STAGE]
        return stages

    def get_client_ip(self, request: HttpRequest) -> str:
        return throttling.client_address(request)

    def add_message(
        self, request: HttpRequest, level: int, message_template: str | None = None,
        *args: Any, **kwargs: Any,
    ) -> None:  # fmt: skip
        if message_template not in _NOT_SHOWN:
            super().add_message(request, level, message_template, *args, **kwargs)

    def respond_user_inactive(self, request: HttpRequest, user: Any) -> HttpResponse:
        return refuse(request, "inactive", _("Your account here was switched off."))
