"""Signing out at the provider (OpenID Connect RP-Initiated Logout 1.0), and being signed out from
there (Back-Channel Logout 1.0)."""

import time
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode, urlsplit

from allauth.socialaccount.models import SocialAccount
from allauth.usersessions.models import UserSession
from django.conf import settings
from django.core.cache import cache
from django.db.models import Q
from django.http import HttpRequest
from django.urls import reverse

from msgplatform.company.single_sign_on.company import CompanyAdapter, uid_of
from msgplatform.company.single_sign_on.tokens import LEEWAY_SECONDS, Refused
from msgplatform.core.errors import Undecryptable
from msgplatform.core.secrets import encryption
from msgplatform.models import AuditLog

# The session's key for the values that signing out needs.
KEY = "provider"
_EVENT = "http://schemas.openid.net/event/backchannel-logout"
# Seconds. An older token of the back channel is refused, a younger one is accepted once.
_MAX_TOKEN_SECONDS = 600


def memory(sociallogin: Any) -> dict[str, str]:
    """The parts of a login that its logout needs: address there, ID token, the session's id."""
    end = sociallogin.end_session_endpoint
    is_url = isinstance(end, str) and urlsplit(end).scheme in ("https", "http")
    return {
        "end": end if is_url else "",
        "token": encryption.encrypt(sociallogin.id_token),
        "sid": str(sociallogin.claims.get("sid", "")),
    }


def address(request: HttpRequest) -> str:
    """The address to which the browser goes after the logout here, to sign out there too. '' if
    this session did not begin there, or the provider has no such page."""
    login_values = request.session.get(KEY) or {}
    if not login_values.get("end"):
        return ""
    query = {
        "client_id": settings.OIDC_CLIENT_ID,
        "post_logout_redirect_uri": f"{settings.PUBLIC_URL}{reverse('company-signed-out')}",
    }
    with suppress(Undecryptable):  # without the token the provider asks the person
        query["id_token_hint"] = encryption.decrypt(login_values["token"])
    end: str = login_values["end"]
    return f"{end}{'&' if '?' in end else '?'}{urlencode(query)}"


def end_sessions(adapter: CompanyAdapter, token: str) -> int:
    """End the sessions that the provider's logout token names; returns their number. Raises Refused
    for an invalid or a used token, and RequestException if the provider's keys cannot be read."""
    claims = adapter.verified(token, required=("jti",))
    events = claims.get("events")
    if not isinstance(events, dict) or _EVENT not in events or "nonce" in claims:
        raise Refused("token", "This is no logout token.")
    sid, subject = claims.get("sid"), claims.get("sub")
    if not (isinstance(sid, str) or isinstance(subject, str)):
        raise Refused("token", "The logout token names neither a session nor a subject.")
    if time.time() - int(claims["iat"]) > _MAX_TOKEN_SECONDS:
        raise Refused("clock", "The logout token is too old.")
    token_key = f"logout-token:{claims['jti']}"
    if cache.get(token_key):
        raise Refused("replay", "The logout token was used before.")
    rows = Q(data__provider=True)
    if isinstance(sid, str):
        rows &= Q(data__sid=sid)
    if isinstance(subject, str):
        uid = uid_of(claims["iss"], subject)
        people = SocialAccount.objects.filter(uid=uid, provider="company").values("user_id")
        rows &= Q(user_id__in=people)
    sessions = list(UserSession.objects.filter(rows).select_related("user"))
    for session in sessions:
        detail = {"address": session.ip, "browser": session.user_agent}
        AuditLog.record("OIDC", "session_ended", session.user.get_username(), **detail)
        session.end()
    # Last, so that a provider whose call failed may repeat it. `iat` may be in the future by the
    # leeway.
    cache.set(token_key, 1, timeout=_MAX_TOKEN_SECONDS + LEEWAY_SECONDS)
    return len(sessions)
