"""The link by which a person who has no password chooses one."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from django.contrib.auth.tokens import default_token_generator
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_encode

if TYPE_CHECKING:
    from django.contrib.auth.models import User

# The address of `console:choose-password`. Not reversed: that would load every page into `up`.
_PAGE = "/console/password/"


def link(user: User) -> str:
    """The path of the page. All links end when a password is chosen, and each after
    PASSWORD_RESET_TIMEOUT."""
    query = urlencode({"token": default_token_generator.make_token(user)})
    return f"{_PAGE}{urlsafe_base64_encode(force_bytes(user.pk))}?{query}"
