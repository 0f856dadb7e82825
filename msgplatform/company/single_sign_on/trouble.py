"""Pages for people, and alerts for operators, when the provider cannot be reached or its answer is
not accepted."""

from http import HTTPStatus

import requests
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _, gettext_noop

from msgplatform.company.signing_in.accounts import provider_names, refuse
from msgplatform.company.single_sign_on.guarded import Unreachable
from msgplatform.company.single_sign_on.tokens import Refused
from msgplatform.core import alerts
from msgplatform.core.lazy_text import lazy_message
from msgplatform.monitor.watch import SIGN_IN, key

# Reasons that are the person's own fault, or nobody's.
_TEXTS = {
    "cancelled": gettext_noop("The sign-in was cancelled."),
    "state": gettext_noop("This sign-in is over, or was begun in another browser: begin again."),
    "busy": gettext_noop("Many people sign in at the moment. Try again in a minute."),
}
# A code that was used, and an error in the callback's address: anybody can send them, and an alert
# would carry a stranger's text.
_OF_BROWSER = frozenset({"code", "error"})
_UNREACHABLE = gettext_noop("%(provider)s does not answer. Try again in a few minutes.")
_WRONG = gettext_noop("The answer of %(provider)s is not accepted, so nobody was signed in.")
_ADVICE = gettext_noop(
    "If it stays so, tell the people who run this platform: %(reason)s. They find more in the "
    "audit log."
)


def refuse_answer(request: HttpRequest, error: Exception, provider_id: str) -> HttpResponse:
    """The page for an error of a sign-in by this provider. Raises an alert if the provider is at
    fault."""
    # A word for the log, and a sentence without secrets.
    if isinstance(error, Refused):
        reason, detail = error.reason, error.detail
    elif isinstance(error, Unreachable):
        reason, detail = error.kind, str(error)
    elif isinstance(error, requests.HTTPError):
        reason, detail = "http", f"HTTP {error.response.status_code}"
    else:
        reason, detail = "malformed", type(error).__name__
    if provider_id != "company" and not isinstance(error, Refused):
        # Chats' errors for a wrong code, which anybody can send.
        if isinstance(error, requests.HTTPError):
            is_refusal = 400 <= error.response.status_code < 500
        else:
            is_refusal = isinstance(error, OAuth2Error)
        reason = "code" if is_refusal else reason
    is_down = isinstance(error, requests.RequestException) and reason != "code"
    status = HTTPStatus.SERVICE_UNAVAILABLE if is_down else HTTPStatus.FORBIDDEN
    if reason in _TEXTS:
        return refuse(request, reason, _(_TEXTS[reason]), status=status, detail=detail)
    name = provider_names()[provider_id]
    if reason not in _OF_BROWSER:
        alerts.raise_alert(
            SIGN_IN,
            lazy_message("People cannot sign in by the company's provider"),
            lazy_message(
                "%(issuer)s: %(reason)s. %(detail)s",
                issuer=settings.OIDC_ISSUER if provider_id == "company" else name,
                reason=reason,
                detail=detail,
            ),
            key=key(SIGN_IN, provider_id),
        )
    return refuse(
        request,
        reason,
        _(_UNREACHABLE if is_down else _WRONG) % {"provider": name},
        advice=_(_ADVICE) % {"reason": reason},
        status=status,
        detail=detail,
    )
