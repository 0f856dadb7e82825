"""Second factors of people (TOTP, WebAuthn, recovery codes; the pages are `allauth.mfa`'s): where
they are required, how their secrets are stored, and the audit log's entries."""

from functools import partial
from typing import Any

from allauth.mfa import signals
from allauth.mfa.adapter import DefaultMFAAdapter, get_adapter
from allauth.mfa.models import Authenticator
from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.dispatch import receiver
from django.http import HttpRequest
from django.utils.translation import gettext as _

from msgplatform.core import logging
from msgplatform.core.errors import Undecryptable
from msgplatform.core.secrets import encryption
from msgplatform.doors.admin.auditing import audit
from msgplatform.doors.api.access import throttling
from msgplatform.models import AuditLog, Role
from msgplatform.roles import ADMINISTRATOR

log = logging.get(__name__)

_FACTORS = (Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN)
# Set when the person of a session is known to have a factor.
_KEY = "second_factor_seen"


class SecondFactorAdapter(DefaultMFAAdapter):  # type: ignore[misc]  # has no types
    """The library's adapter. Its secrets are stored encrypted with the platform's keys."""

    def get_totp_label(self, user: Any) -> str:
        return str(user.get_username())

    def encrypt(self, text: str) -> str:
        return encryption.encrypt(text)

    def decrypt(self, encrypted_text: str) -> str:
        try:
            return encryption.decrypt(encrypted_text)
        except Undecryptable:
            # The person only sees that the code is wrong; the log has the reason.
            log.exception("second_factor_undecryptable")
            raise self.validation_error("incorrect_code") from None

    def generate_authenticator_name(self, user: Any, type: Authenticator.Type) -> str:
        count = Authenticator.objects.filter(user_id=user.pk, type=type).count()
        return str(_("Key %d") % (count + 1))


def has_factor(user: Any) -> bool:
    """True if the person proves themselves with TOTP or a security key at each login."""
    return bool(get_adapter().is_mfa_enabled(user, types=list(_FACTORS)))


def is_missing(request: HttpRequest) -> bool:
    """True if the person of this request must set up a second factor before anything else, by
    MFA_ROLES."""
    roles = settings.MFA_ROLES
    if not roles or request.session.get(_KEY) == [*roles]:
        return False
    # Looked up at each request, because somebody may get such a role meanwhile.
    user: Any = request.user
    is_required = user.is_superuser and ADMINISTRATOR in roles
    if not is_required and not Role.objects.filter(name__in=roles, group__user=user).exists():
        return False
    if not has_factor(user):
        return True
    request.session[_KEY] = [*roles]
    return False


def remove_all(user: User, actor: str) -> int:
    """Take all second factors from a person who has lost them, and end the person's sessions.
    Returns how many factors there were; an entry of the audit log says who did it."""
    with transaction.atomic():
        number, _by_model = Authenticator.objects.filter(user=user).delete()
        if number:
            AuditLog.record(actor, "second_factors_reset", user.get_username())
            for session in UserSession.objects.filter(user=user):
                session.end()
    return int(number)


# -- the audit log -------------------------------------------------------------------------------
@receiver(signals.authenticator_used, dispatch_uid="msgplatform.factor_used")
def _used(
    sender: Any, request: HttpRequest, user: Any, authenticator: Authenticator, **other: Any
) -> None:
    """A recovery code is used after something was lost or stolen."""
    if authenticator.type == Authenticator.Type.RECOVERY_CODES:
        AuditLog.record(user.get_username(), "recovery_code_used", user.get_username())


@receiver(signals.authentication_failed, dispatch_uid="msgplatform.factor_failed")
def _note_failure(sender: Any, request: HttpRequest, user: Any, **other: Any) -> None:
    log.warning(
        "second_factor_refused",
        user=user.get_username(),
        address=throttling.client_address(request),
    )


def _audit(
    action: str, sender: Any, request: HttpRequest, authenticator: Authenticator, **other: Any
) -> None:
    if action == "second_factor_removed":
        request.session.pop(_KEY, None)
    audit(request, action, request.user.get_username(), kind=authenticator.type)


for _signal, _action in (
    (signals.authenticator_added, "second_factor_added"),
    (signals.authenticator_removed, "second_factor_removed"),
    (signals.authenticator_reset, "second_factor_renewed"),
):
    _signal.connect(partial(_audit, _action), weak=False, dispatch_uid=f"msgplatform.{_action}")
