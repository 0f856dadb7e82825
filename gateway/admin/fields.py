"""Form fields: passwords that are never shown again, and the checks of addresses and texts."""

from __future__ import annotations

import re
from contextlib import suppress
from ipaddress import ip_address, ip_network
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from msgplatform.admin import PasswordInput
from msgplatform.core.fields import Unreadable

# Labels as in RFC 1123, and with underscores, which inner networks use.
_HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")


def ascii_only(value: str) -> None:
    """A text that goes into a frame unchanged. Raises ValidationError."""
    if not (value.isascii() and value.isprintable()):
        raise ValidationError(_("SGIP takes ASCII characters only."))


def host(value: str) -> None:
    """A name or an IP address, and nothing else: the port has a field of its own."""
    with suppress(ValueError):
        ip_address(value)
        return
    if not _HOST_NAME.fullmatch(value):
        raise ValidationError(
            _("A name or an IP address only, without a port, a space or http://.")
        )


def network(value: str) -> None:
    """An address, or a network in CIDR form."""
    try:
        ip_network(value)
    except ValueError:
        raise ValidationError(
            _("%(value)s is no address and no network such as 203.0.113.0/28 or 2001:db8::/64."),
            params={"value": value},
        ) from None


class PasswordField(forms.CharField):
    """Written only: a stored password is never sent to a browser; empty keeps it."""

    is_secret = True

    def __init__(self, **options: Any) -> None:
        super().__init__(
            strip=False,
            max_length=16,
            validators=[ascii_only],
            error_messages={"required": _("Give a password.")},
            help_text=_("At most 16 ASCII characters"),
            widget=PasswordInput(attrs={"autocomplete": "new-password"}, render_value=False),
            **options,
        )
        self._stored = ""

    def keep(self, password: str | Unreadable) -> None:
        """From now on an empty field means this password, unless it cannot be decrypted."""
        if isinstance(password, Unreadable):
            self.help_text = _("The stored one cannot be decrypted: give it again.")
            return
        self._stored = password
        self.required = not password
        if password:
            self.help_text = _("Never shown; leave it empty to keep it.")

    def clean(self, value: Any) -> str:
        # An empty field keeps the stored password, which never leaves the server.
        return super().clean(value) or self._stored
