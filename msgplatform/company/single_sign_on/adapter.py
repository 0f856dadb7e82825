"""Decides which people of the company's provider get in, and with which roles. Only issuer and
subject join accounts: an address or a name that two people share never does.

Groups of the token are the roles and the business systems that a person has here (OIDC_ROLES,
OIDC_SYSTEMS). They are set at each login, as the token has them."""

import time
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import msgspec
import requests
from allauth.account.authentication import get_authentication_records
from allauth.account.signals import user_logged_in
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.providers.base.constants import AuthError, AuthProcess
from allauth.socialaccount.signals import social_account_added
from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.db.models import Q
from django.dispatch import receiver
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext as _

from msgplatform import person_limits
from msgplatform.company.signing_in import accounts
from msgplatform.company.signing_in.accounts import refuse
from msgplatform.company.single_sign_on import guarded, logout
from msgplatform.company.single_sign_on.company import ID
from msgplatform.company.single_sign_on.tokens import Refused
from msgplatform.company.single_sign_on.trouble import refuse_answer
from msgplatform.core import alerts, logging
from msgplatform.doors.admin import confirmation
from msgplatform.doors.admin.auditing import audit
from msgplatform.models import AuditLog, Biz
from msgplatform.monitor.watch import SIGN_IN, key

log = logging.get(__name__)

# A sign-in at the provider is new for so long: it may ask for another factor after `auth_time`.
NEW_SIGN_IN_SECONDS = 300
EVERY_SYSTEM = "*"
ACTOR = "OIDC"
_MAX_GROUPS = 1000
# The person did not finish there (Core 1.0, 3.1.2.6): nothing needs repair.
_ERRORS_OF_PERSON = frozenset(
    {"login_required", "interaction_required", "account_selection_required", "consent_required"}
)


class CompanyAccountAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc]  # has no types
    def get_requests_session(self) -> requests.Session:
        return guarded.session()

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        """True, because `pre_social_login` has refused people without a role."""
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
            is_cancelled = (
                error == AuthError.CANCELLED or request.GET.get("error") in _ERRORS_OF_PERSON
            )
            is_stale = "state" not in (extra_context or {})
            reason = "cancelled" if is_cancelled else "state" if is_stale else "error"
            code = "" if is_stale else request.GET.get("error", "")
            exception = Refused(reason, code[:100])
        raise ImmediateHttpResponse(refuse_answer(request, exception, provider.sub_id))

    def pre_social_login(self, request: HttpRequest, sociallogin: Any) -> None:
        process = sociallogin.state.get("process")
        if process == AuthProcess.CONNECT:
            _refuse_left_to_company(request, request.user, sociallogin.account.provider)
            return
        if process == AuthProcess.REDIRECT:
            # A new sign-in there proves who the person of this session is.
            if not sociallogin.is_existing or sociallogin.user != request.user:
                text = _("You signed in there as somebody else.")
                raise ImmediateHttpResponse(refuse(request, "somebody_else", text))
            # Somebody at an open session can remove `prompt` and `max_age` from the address: then
            # the provider signs in the person that it remembers.
            if not _is_new(sociallogin.claims):
                text = _("The provider did not say that you signed in there anew.")
                advice = _(accounts.ASK_FOR_LINK)
                raise ImmediateHttpResponse(refuse(request, "not_anew", text, advice=advice))
            confirmation.record(request)
            return
        if sociallogin.account.provider != ID:
            # Feishu and DingTalk have no roles: only accounts that a person has linked are
            # accepted.
            account = sociallogin.account
            if sociallogin.is_existing and sociallogin.user.is_staff:
                _refuse_left_to_company(request, sociallogin.user, account.provider)
                return
            text = _("No user of this platform is linked with this account.")
            advice = _(
                "Sign in with your password or by your company first, then link it under Your "
                "sessions. The people who run this platform make a user for you."
            )
            detail = {"provider": account.provider, "subject": account.uid}
            raise ImmediateHttpResponse(
                refuse(request, "not_linked", text, advice=advice, **detail)
            )
        claims = sociallogin.claims
        grant = read_grant(claims)
        if sociallogin.is_existing:
            apply_grant(sociallogin.user, grant)
        if not grant.roles:
            text = _("%(provider)s knows you, and none of your groups has a role on this platform.")
            advice = _(
                "Ask the people who run this platform, or those who look after groups in your "
                "company, for a group that has one. Your name there: %s."
            )
            raise ImmediateHttpResponse(refuse(
                request, "no_role", text % {"provider": settings.OIDC_NAME},
                advice=advice % _name(claims), who=_name(claims), status=HTTPStatus.FORBIDDEN,
                groups=groups_of(claims)[:50], missing=list(grant.missing),
            ))  # fmt: skip
        sociallogin.grant = grant
        sociallogin.state["is_new"] = _is_new(claims)
        sociallogin.state["provider"] = logout.memory(sociallogin)
        request.is_company_login = True  # type: ignore[attr-defined]

    @transaction.atomic
    def save_user(self, request: HttpRequest, sociallogin: Any, form: Any = None) -> Any:
        user = super().save_user(request, sociallogin, form)
        apply_grant(user, sociallogin.grant)
        return user


def _is_new(claims: dict[str, Any]) -> bool:
    """True if the person has just signed in there. The answer to a `max_age` must have the claim
    (OpenID Connect Core 1.0, 2). Without it the time of the sign-in is unknown."""
    signed_in_at = claims.get("auth_time")
    if not isinstance(signed_in_at, int | float):
        return False
    return time.time() - signed_in_at <= NEW_SIGN_IN_SECONDS


def _refuse_left_to_company(request: HttpRequest, user: Any, provider_id: str) -> None:
    if accounts.is_left_to_company(user, provider_id):
        answer = accounts.refuse_left_to_company(request, user, provider_id)
        raise ImmediateHttpResponse(answer)


def _name(claims: dict[str, Any]) -> str:
    return str(claims.get("preferred_username") or claims.get("email") or claims["sub"])


@receiver(user_logged_in, dispatch_uid="msgplatform.company_login")
def _remember(sender: Any, request: HttpRequest, sociallogin: Any = None, **other: Any) -> None:
    """Called after all steps of a login. Stores whether the login proved who the person is, and the
    values for signing out at the provider."""
    if sociallogin is None:
        return
    # Only a second factor of this login counts, not one of an earlier login of the session.
    has_new_factor = any(
        record.get("method") == "mfa" and time.time() - record["at"] <= NEW_SIGN_IN_SECONDS
        for record in get_authentication_records(request, request.user)
    )
    if not sociallogin.state.get("is_new") and not has_new_factor:
        # The provider remembered the person without asking, or does not tell.
        confirmation.forget(request)
    alerts.resolve(key(SIGN_IN, sociallogin.account.provider))
    alerts.resolve(SIGN_IN)  # set by an earlier release
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
def _note_link(sender: Any, request: HttpRequest, sociallogin: Any, **other: Any) -> None:
    audit(request, "account_linked", request.user.get_username(),
          provider=sociallogin.account.provider, subject=sociallogin.account.uid)  # fmt: skip


# -- roles and systems ---------------------------------------------------------------------------
class Grant(msgspec.Struct, frozen=True):
    """`roles` are groups of the console; `systems` the names of business systems, None for no
    limit; `missing` are roles and systems of the settings that do not exist here."""

    roles: tuple[Group, ...]
    systems: tuple[str, ...] | None
    missing: tuple[str, ...]


def groups_of(claims: dict[str, Any]) -> list[str]:
    """The person's groups: the claim of OIDC_GROUPS_CLAIM, whose name may have dots for objects
    inside of objects (`realm_access.roles`). A text is one group; anything else is none."""
    value: Any = claims.get(settings.OIDC_GROUPS_CLAIM)
    if value is None:
        value = claims
        for part in settings.OIDC_GROUPS_CLAIM.split("."):
            value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        return []
    return [name for name in value[:_MAX_GROUPS] if isinstance(name, str)]


def read_grant(claims: dict[str, Any]) -> Grant:
    """The roles and systems for these claims. Groups that the settings do not name are ignored."""
    groups = groups_of(claims)
    role_names = _map_groups(groups, settings.OIDC_ROLES)
    rows = Group.objects.filter(Q(role__name__in=role_names) | Q(name__in=role_names))
    roles = tuple(rows.select_related("role").order_by("name"))
    known_names = {row.name for row in roles}
    known_names |= {row.role.name for row in roles if hasattr(row, "role")}
    missing = [f"role {name}" for name in role_names if name not in known_names]
    systems: tuple[str, ...] | None = None
    if settings.OIDC_SYSTEMS:
        names = _map_groups(groups, settings.OIDC_SYSTEMS)
        if EVERY_SYSTEM not in names:
            systems = tuple(
                Biz.objects.filter(name__in=names).order_by("name").values_list("name", flat=True)
            )
            missing += [f"system {name}" for name in names if name not in systems]
    if missing:
        log.warning("sign_in_unknown_names", missing=missing)
    return Grant(roles, systems, tuple(missing))


def _map_groups(groups: Iterable[str], mapping: dict[str, list[str]]) -> list[str]:
    return sorted({name for group in groups for name in mapping.get(group, ())})


@transaction.atomic
def apply_grant(user: User, grant: Grant) -> None:
    """Give the person exactly these roles, no permissions beside them, and this limit if
    OIDC_SYSTEMS has any. The audit log gets the changes. Without a role the person can no longer
    enter the console."""
    person_limits.lock(user)
    before = sorted(user.groups.values_list("name", flat=True))
    after = sorted(group.name for group in grant.roles)
    changes: dict[str, list[list[str]]] = {}
    if before != after:
        user.groups.set(grant.roles)
        changes["groups"] = [before, after]
    rows = user.user_permissions.values_list("content_type__app_label", "codename")
    if permissions := sorted(f"{app}.{name}" for app, name in rows):
        user.user_permissions.clear()
        changes["user_permissions"] = [permissions, []]
    if changes:
        AuditLog.record(ACTOR, "user_changed", user.get_username(), changes=changes)
    # Only people make superusers, who have other ways in.
    if user.is_staff != bool(after) and not user.is_superuser:
        user.is_staff = bool(after)
        user.save(update_fields=["is_staff"])
    if settings.OIDC_SYSTEMS and after:
        person_limits.limit_person(user, grant.systems, ACTOR)
    if grant.missing:
        missing = list(grant.missing)
        AuditLog.record(ACTOR, "sign_in_unknown_names", user.get_username(), missing=missing)
