"""Who of the company's provider gets in, and as what. Accounts belong together by issuer and
subject alone: an address or a name that two people share never joins them."""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Any

import requests
from allauth.account.authentication import get_authentication_records
from allauth.account.signals import user_logged_in
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.providers.base.constants import AuthError, AuthProcess
from allauth.socialaccount.signals import social_account_added
from allauth.usersessions.models import UserSession
from django.conf import settings
from django.db import transaction
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from msgplatform.admin import confirmation
from msgplatform.admin.auditing import audit
from msgplatform.company.signing_in import accounts
from msgplatform.company.signing_in.refusal import refuse
from msgplatform.company.single_sign_on import groups, guarded, logout
from msgplatform.company.single_sign_on.company import ID, Refused
from msgplatform.company.single_sign_on.trouble import refuse_answer
from msgplatform.core import alerts
from msgplatform.core.daemons.watch import kinds

# A sign-in at the provider is new for so long: it may ask for another factor after `auth_time`.
NEW_SIGN_IN_SECONDS = 300


class CompanyAccountAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc]  # has no types
    def get_requests_session(self) -> requests.Session:
        return guarded.session()

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        """`pre_social_login` has refused people without a role."""
        return True

    def get_connect_redirect_url(self, request: HttpRequest, socialaccount: Any) -> str:
        return reverse("console:sessions")

    def on_authentication_error(
        self,
        request: HttpRequest,
        provider: Any,
        error: Any = None,
        exception: Exception | None = None,
        extra_context: Any = None,
    ) -> None:
        if exception is None:
            is_cancelled = error == AuthError.CANCELLED
            is_stale = "state" not in (extra_context or {})
            reason = "cancelled" if is_cancelled else "state" if is_stale else "error"
            said = request.GET.get("error", "") if not is_stale else ""
            exception = Refused(reason, said[:100])
        raise ImmediateHttpResponse(refuse_answer(request, exception, provider.sub_id))

    def pre_social_login(self, request: HttpRequest, sociallogin: Any) -> None:
        process = sociallogin.state.get("process")
        if process == AuthProcess.CONNECT:
            _refuse_left_to_company(request, request.user, sociallogin.account.provider)
            return
        if process == AuthProcess.REDIRECT:
            self._confirm(request, sociallogin)
            return
        if sociallogin.account.provider != ID:
            # Feishu and DingTalk know nothing of roles: only accounts that a person has linked
            # count.
            account = sociallogin.account
            if sociallogin.is_existing and sociallogin.user.is_staff:
                _refuse_left_to_company(request, sociallogin.user, account.provider)
                return
            text = _("No user of this platform is linked with this account.")
            advice = _(
                "Sign in with your password or by your company first, then link it under Your "
                "sessions. Whoever runs this platform makes a user for you."
            )
            detail = {"provider": account.provider, "subject": account.uid}
            raise ImmediateHttpResponse(
                refuse(request, "not_linked", text, advice=advice, **detail)
            )
        claims = sociallogin.claims
        granted = groups.grant(claims)
        if sociallogin.is_existing:
            groups.apply(sociallogin.user, granted)
        if not granted.roles:
            raise ImmediateHttpResponse(_without_role(request, claims, granted))
        sociallogin.granted = granted
        sociallogin.state["is_new"] = _is_new(claims)
        sociallogin.state["provider"] = logout.memory(sociallogin)
        request.is_company_login = True  # type: ignore[attr-defined]

    @transaction.atomic
    def save_user(self, request: HttpRequest, sociallogin: Any, form: Any = None) -> Any:
        user = super().save_user(request, sociallogin, form)
        groups.apply(user, sociallogin.granted)
        return user

    def _confirm(self, request: HttpRequest, sociallogin: Any) -> None:
        """Another sign-in there, as the proof of who the person of this session is."""
        if not sociallogin.is_existing or sociallogin.user != request.user:
            text = _("You signed in there as somebody else.")
            raise ImmediateHttpResponse(refuse(request, "somebody_else", text))
        # Whoever sits at an open session can take `prompt` and `max_age` out of the address; then
        # the provider signs in the person that it remembers.
        if not _is_new(sociallogin.claims):
            text = _("The provider did not say that you signed in there anew.")
            advice = _(
                "Ask the people who run this platform for a link to log in (manage.py login_link). "
                "Then set up a second factor: it proves it from then on."
            )
            raise ImmediateHttpResponse(refuse(request, "not_anew", text, advice=advice))
        confirmation.record(request)


def _is_new(claims: dict[str, Any]) -> bool:
    """True if the person has just signed in there. The claim is a must in an answer to `max_age`
    (OpenID Connect Core 1.0, 2); without it nothing is known."""
    signed_in_at = claims.get("auth_time")
    if not isinstance(signed_in_at, int | float):
        return False
    return time.time() - signed_in_at <= NEW_SIGN_IN_SECONDS


def _refuse_left_to_company(request: HttpRequest, user: Any, id: str) -> None:
    if accounts.is_left_to_company(user, id):
        answer = accounts.refuse_left_to_company(request, user, id)
        raise ImmediateHttpResponse(answer)


def _without_role(
    request: HttpRequest, claims: dict[str, Any], granted: groups.Grant
) -> HttpResponse:
    names = groups.groups_of(claims)
    text = _("%(provider)s knows you, and none of your groups has a role on this platform.") % {
        "provider": settings.OIDC_NAME
    }
    advice = _(
        "Ask the people who run this platform, or those who look after groups in your company, for "
        "a group that has one. Your name there: %s."
    ) % _name(claims)
    return refuse(
        request, "no_role", text, advice=advice, who=_name(claims), status=HTTPStatus.FORBIDDEN,
        groups=names[:50], missing=list(granted.missing),
    )  # fmt: skip


def _name(claims: dict[str, Any]) -> str:
    return str(claims.get("preferred_username") or claims.get("email") or claims["sub"])


@receiver(user_logged_in, dispatch_uid="msgplatform.company_login")
def _remember(sender: Any, request: HttpRequest, sociallogin: Any = None, **other: Any) -> None:
    """After all steps of a login: whether it proved who the person is, and what signing out at the
    provider needs."""
    if sociallogin is None:
        return
    # A second factor counts that was part of this login, and not of an earlier one of the session.
    has_new_factor = any(
        record.get("method") == "mfa" and time.time() - record["at"] <= NEW_SIGN_IN_SECONDS
        for record in get_authentication_records(request, request.user)
    )
    if not sociallogin.state.get("is_new") and not has_new_factor:
        # The provider remembered the person and asked for nothing, or does not say.
        confirmation.forget(request)
    alerts.resolve(kinds.key(kinds.SIGN_IN, sociallogin.account.provider))
    alerts.resolve(kinds.SIGN_IN)  # of an earlier release
    memory = sociallogin.state.get("provider")
    if not memory:
        return
    request.session[logout.KEY] = memory
    if settings.OIDC_SECOND_FACTOR:
        request.session["second_factor_seen"] = [*settings.MFA_ROLES]
    UserSession.objects.create_from_request(request)
    rows = UserSession.objects.filter(session_key=request.session.session_key)
    rows.update(data={"sid": memory["sid"], "provider": True})


@receiver(social_account_added, dispatch_uid="msgplatform.company_linked")
def _linked(sender: Any, request: HttpRequest, sociallogin: Any, **other: Any) -> None:
    audit(request, "account_linked", request.user.get_username(),
          provider=sociallogin.account.provider, subject=sociallogin.account.uid)  # fmt: skip
