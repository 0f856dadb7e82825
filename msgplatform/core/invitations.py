"""The link for choosing the first password.

The link has a digest of the person's row, and is not stored. The link ends when the person chooses
a password, or the mark for "no password" is made anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from django.conf import settings
from django.contrib.auth.tokens import default_token_generator
from django.core.mail import send_mail
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_encode
from django.utils.translation import gettext as _

from msgplatform.core import outbound

if TYPE_CHECKING:
    from django.contrib.auth.models import User

# The address of `console:choose-password`. `reverse` would load every page into `up`.
_PAGE = "/console/password/"


def link_path(user: User) -> str:
    """The path of the page. All links end when a password is chosen, and each after
    PASSWORD_RESET_TIMEOUT."""
    query = urlencode({"token": default_token_generator.make_token(user)})
    return f"{_PAGE}{urlsafe_base64_encode(force_bytes(user.pk))}?{query}"


def is_open(user: User) -> bool:
    """True if the person is active, has never logged in, and has no password."""
    return user.is_active and not user.last_login and not user.has_usable_password()


def revoke(user: User) -> None:
    """End all links of a person who has no password."""
    user.set_unusable_password()  # with random characters, which the digest covers
    user.save(update_fields=["password"])


def has_mail() -> bool:
    """True if a mail server is configured."""
    return bool(settings.MAIL_URL)


def send(user: User, url: str) -> str:
    """Send the link's URL to the person's mail address. Returns the reason of a failure, or ''."""
    if outbound.is_off():
        return _("nothing leaves the platform (OUTBOUND=off)")
    text = _(
        "You are invited to the console at %(address)s, as %(name)s. Choose a password on this "
        "page within a day; the link serves once:"
    ) % {"address": settings.PUBLIC_URL, "name": user.get_username()}
    try:
        send_mail(_("Your invitation"), f"{text}\n\n{url}\n", None, [user.email])
    except OSError as error:  # SMTPException is one
        return str(error)[:200]
    return ""
