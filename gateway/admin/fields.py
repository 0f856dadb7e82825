"""Form fields: passwords that are never shown again."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from gateway.models.validators import ascii_only
from msgplatform.admin import PasswordInput
from msgplatform.core.fields import Unreadable


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
