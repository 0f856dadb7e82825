"""Form fields that flows share."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import ProhibitNullCharactersValidator
from django.utils.translation import gettext as _

from msgplatform.admin import Textarea, TextInput
from msgplatform.core.fields import Unreadable

Check = Callable[[Any], None]
_no_null = ProhibitNullCharactersValidator()
_UNITS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")


def each(check_list: Check) -> Check:
    """The validator of a list as one of a single item."""
    return lambda item: check_list([item])


class LinesField(forms.Field):
    """A list of texts, one a line, each once; an error for each wrong line.

    `check` raises ValidationError for an item that is wrong.
    """

    widget = Textarea
    repeats = False  # whether an item may be there twice

    def __init__(self, *, check: Check, rows: int = 3, **kwargs: Any) -> None:
        kwargs.setdefault("required", False)
        super().__init__(widget=self.widget({"rows": rows, "class": "lines"}), **kwargs)
        self.check_item = check

    def prepare_value(self, value: Any) -> Any:
        listed = isinstance(value, list | tuple)
        return "\n".join(self.show(item) for item in value) if listed else value

    def to_python(self, value: Any) -> Any:
        items = list(self.each_line(str(value or ""), self._item))
        return items if self.repeats else list(dict.fromkeys(items))

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return bool(self.to_python(data) != (initial or self.to_python("")))
        except ValidationError:
            return True

    def show(self, item: Any) -> str:
        return str(item)

    def read(self, line: str) -> Any:
        """The item that a line means. Raises ValidationError."""
        return line

    def _item(self, line: str) -> Any:
        item = self.read(line)
        self.check_item(item)
        return item

    def each_line(self, text: str, read: Callable[[str], Any]) -> Iterator[Any]:
        """What `read` makes of each line that is not empty. Raises ValidationError with what is
        wrong with each of them."""
        _no_null(text)
        errors = []
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip():
                continue
            try:
                yield read(line.strip())
            except ValidationError as error:
                words = " ".join(error.messages)
                errors.append(_("Line %(number)d: %(error)s") % {"number": number, "error": words})
        if errors:
            raise ValidationError(errors)


class WaitsField(LinesField):
    """Waits in seconds, written as people say them: `5 s`, `30 min`, `2 h`, `1 d`."""

    repeats = True

    def show(self, item: Any) -> str:
        for unit, seconds in (("d", 86400), ("h", 3600), ("min", 60)):
            if item and not item % seconds:
                return f"{item // seconds:g} {unit}"
        return f"{item:g} s"

    def read(self, line: str) -> int | float:
        found = _DURATION.fullmatch(line.lower())
        if found is None or (found[2] and found[2] not in _UNITS):
            raise ValidationError(
                _("%r is not a valid delay: write 30 s, 5 min, 2 h or 1 d.") % line
            )
        seconds = float(found[1]) * _UNITS[found[2] or "s"]
        return int(seconds) if seconds.is_integer() else seconds


class ObjectField(forms.Field):
    """An object as JSON writes it, a property a line; what is wrong is said with its line."""

    widget = Textarea

    def __init__(self, *, rows: int = 8, **kwargs: Any) -> None:
        kwargs.setdefault("required", False)
        attrs = {"rows": rows, "class": "lines", "spellcheck": "false"}
        super().__init__(widget=self.widget(attrs), **kwargs)

    def prepare_value(self, value: Any) -> Any:
        is_object = isinstance(value, dict)
        return json.dumps(value, indent=2, ensure_ascii=False) if is_object else value

    def to_python(self, value: Any) -> Any:
        text = str(value or "").strip()
        _no_null(text)
        try:
            found = json.loads(text or "{}")
        except json.JSONDecodeError as error:
            raise ValidationError(
                _("Line %(line)d, column %(column)d: this is no JSON. %(why)s.")
                % {"line": error.lineno, "column": error.colno, "why": error.msg}
            ) from None
        except RecursionError:
            raise ValidationError(_("This is nested too deeply.")) from None
        if not isinstance(found, dict):
            raise ValidationError(_('Write an object: {"name": "value"}.'))
        return found

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return bool(self.to_python(data) != (initial or {}))
        except ValidationError:
            return True


class _NeverShown:
    """A widget that sends nothing to the browser, also not what it was just given."""

    def format_value(self, value: Any) -> str:
        return ""


class _SecretTextarea(_NeverShown, Textarea):  # type: ignore[misc]  # unfold has no types
    pass


class _SecretInput(_NeverShown, TextInput):  # type: ignore[misc]  # unfold has no types
    pass


class _WriteOnly(forms.Field):
    """Empty keeps what is stored, which `keep` tells."""

    is_secret = True
    _stored: Any = None

    def keep(self, stored: Any, shown: str) -> None:
        """`shown` says without the value what is stored; '' when nothing is."""
        if isinstance(stored, Unreadable):
            self.required = True
            self.help_text = _("The stored value cannot be decrypted: write it again.")
            return
        self._stored = stored
        if shown:
            self.required = False
            self.help_text = _("%s Never shown; leave it empty to keep it.") % shown

    def clean(self, value: Any) -> Any:
        is_kept = not str(value or "").strip() and self._stored
        return self._stored if is_kept else super().clean(value)

    def has_changed(self, initial: Any, data: Any) -> bool:
        return bool(str(data or "").strip())


class SecretObjectField(_WriteOnly, ObjectField):
    """Secrets by name, as JSON, written only."""

    widget = _SecretTextarea


class SecretTextField(_WriteOnly, forms.CharField):
    """One line of secret text, written only."""

    widget = _SecretInput({"autocomplete": "off", "spellcheck": "false"})
