"""The address at which people reach the console, as programs beside `up` know it; and the link by
which a person who has no password chooses one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from django.conf import settings
from django.contrib.auth.tokens import default_token_generator
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_encode

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def keep_served(url: str) -> None:
    """Tell other programs on this machine the address that `up` serves."""
    _file().write_text(url, encoding="utf-8")


def served_url() -> str:
    """PUBLIC_URL; without it the address of the platform that `up` started last, with the same
    STATE_DIR."""
    if not settings.PUBLIC_URL_SET and _file().exists():
        return _file().read_text(encoding="utf-8")
    return str(settings.PUBLIC_URL)


def _file() -> Path:
    return Path(settings.STATE_DIR) / "run" / "url"


# The address of `console:choose-password`. Not reversed: that would load every page into `up`.
_CHOOSE_PAGE = "/console/password/"


def password_link(user: User) -> str:
    """The path of the page for a new password. All links end when a password is chosen, and each
    after PASSWORD_RESET_TIMEOUT."""
    query = urlencode({"token": default_token_generator.make_token(user)})
    return f"{_CHOOSE_PAGE}{urlsafe_base64_encode(force_bytes(user.pk))}?{query}"
