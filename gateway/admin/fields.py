"""Form fields: passwords that are never shown again, and lists with one item a line."""

from __future__ import annotations

import re
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminPasswordWidget

from msgplatform.admin import Textarea


class PasswordField(forms.CharField):
    """Written only: a stored password is never sent to a browser; empty keeps it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            required=False,
            strip=False,
            max_length=16,
            widget=UnfoldAdminPasswordWidget(
                attrs={"autocomplete": "new-password"}, render_value=False
            ),
            **options,
        )
        self.stored = ""

    def clean(self, value: Any) -> str:
        given = super().clean(value)
        if given and not given.isascii():
            raise ValidationError(_("SGIP takes ASCII characters only."))
        if not given and not self.stored:
            raise ValidationError(_("Give a password."))
        return given or self.stored


class LinesField(forms.CharField):
    """A list of texts as one item a line; `each` is what an item has to match."""

    def __init__(self, each: str, wrong: Any, **options: Any) -> None:
        super().__init__(required=False, widget=Textarea(attrs={"rows": 4}), **options)
        self._each, self._wrong = re.compile(each), wrong

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(map(str, value)) if isinstance(value, list | tuple) else value

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value) or ""
        items = list(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip()))
        for item in items:
            if not self._each.fullmatch(item):
                raise ValidationError(f"{item}: {self._wrong}")
        return items

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return bool(list(initial or []) != self.to_python(data))
        except ValidationError:
            return True
