"""Form fields that flows share."""

import json
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import ProhibitNullCharactersValidator
from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import format_lazy
from django.utils.translation import gettext as _, gettext_lazy

from msgplatform.core import durations
from msgplatform.core.json.text import parse_json
from msgplatform.core.json.values import MAX_STORED_DEPTH, is_same
from msgplatform.core.secrets.fields import Unreadable
from msgplatform.doors.admin import Textarea, TextInput
from msgplatform.doors.admin.base import refuse_controls

Check = Callable[[Any], None]
_no_null = ProhibitNullCharactersValidator()
_MAX_LINES = 2000  # twice as many as the longest list has items
_MAX_ERRORS = 20  # of one field


def item_check(*list_checks: Check) -> Check:
    """A validator of a single item, made of validators of the list."""

    def check_item(item: Any) -> None:
        for check in list_checks:
            check([item])

    return check_item


class _Lines(Textarea):
    """A text area. On a read-only page it shows the list's items below each other."""

    read_only = True  # makes the admin show the stored value by the widget
    show: Callable[[Any], str] = str

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        if isinstance(value, list | tuple):
            return format_html_join(mark_safe("<br>"), "{}", ((self.show(item),) for item in value))
        return SafeString(super().render(name, value, attrs, renderer))


class LinesField(forms.Field):
    """A list of texts, one on each line, without repeats; an error for each invalid line.

    `check` raises ValidationError for an invalid item.
    """

    widget = _Lines
    may_repeat = False  # True if duplicate items are allowed
    note: Any = gettext_lazy("One on each line.")  # text before the help text

    def __init__(self, *, check: Check, rows: int = 3, help_text: Any = "", **kwargs: Any) -> None:
        kwargs.setdefault("required", False)
        kwargs["help_text"] = format_lazy("{} {}", self.note, help_text) if help_text else self.note
        super().__init__(widget=self.widget({"rows": rows, "class": "lines"}), **kwargs)
        self.widget.show = self.show
        self.check_item = check

    def prepare_value(self, value: Any) -> Any:
        is_list = isinstance(value, list | tuple)
        return "\n".join(self.show(item) for item in value) if is_list else value

    def to_python(self, value: Any) -> Any:
        def read_item(line: str) -> Any:
            item = self.read(line)
            self.check_item(item)
            return item

        items = list(self.read_lines(str(value or ""), read_item))
        return items if self.may_repeat else list(dict.fromkeys(items))

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return not is_same(self.to_python(data), initial or self.to_python(""))
        except ValidationError:
            return True

    def show(self, item: Any) -> str:
        return str(item)

    def read(self, line: str) -> Any:
        """The item that a line means. Raises ValidationError."""
        return line

    def read_lines(self, text: str, read: Callable[[str], Any]) -> Iterator[Any]:
        """The items that `read` returns for the lines that are not empty. Raises ValidationError
        with the errors of all lines, up to _MAX_ERRORS."""
        _no_null(text)
        errors: list[str] = []
        for number, line in enumerate(StringIO(text, newline=None), 1):
            if number > _MAX_LINES:
                errors.append(_("Write %d lines at most.") % _MAX_LINES)
            if number > _MAX_LINES or len(errors) >= _MAX_ERRORS:
                break
            if not line.strip():
                continue
            try:
                refuse_controls(line)
                yield read(line.strip())
            except ValidationError as error:
                words = " ".join(error.messages)
                errors.append(_("Line %(number)d: %(error)s") % {"number": number, "error": words})
        if errors:
            raise ValidationError(errors)


class WaitsField(LinesField):
    """Delays in seconds, written with units: `5 s`, `30 min`, `2 h`, `1 d`."""

    note = gettext_lazy("One on each line: 5 s, 30 min, 2 h, 1 d.")
    may_repeat = True

    def show(self, item: Any) -> str:
        if not isinstance(item, int | float):  # a statement may have stored it
            return str(item)
        for unit, seconds in (("d", 86400), ("h", 3600), ("min", 60)):
            if item and not item % seconds:
                return f"{item // seconds:g} {unit}"
        return f"{item:g} s"

    def read(self, line: str) -> int | float:
        try:
            return durations.seconds(line)
        except ValueError:
            raise ValidationError(
                _("%r is not a valid delay: write 30 s, 5 min, 2 h or 1 d.") % line
            ) from None


class _TypedText(str):
    """Text as a person types it, which the form shows unchanged. Other texts are JSON values."""


def _json_text(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


class _JsonText(Textarea):
    """A text area. On a read-only page it shows the value as JSON, "-" for None."""

    read_only = True

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> Any:
        if value is None:
            return "-"
        if isinstance(value, _TypedText):
            return super().render(name, value, attrs, renderer)
        return format_html('<pre class="json">{}</pre>', _json_text(value))


class JsonField(forms.Field):
    """Any JSON value, over several lines. An error names its line. None if the field is empty."""

    widget = _JsonText

    def __init__(self, *, rows: int = 8, **kwargs: Any) -> None:
        kwargs.setdefault("required", False)
        attrs = {"rows": rows, "class": "lines", "spellcheck": "false"}
        super().__init__(widget=self.widget(attrs), **kwargs)

    def bound_data(self, data: Any, initial: Any) -> Any:
        return initial if self.disabled or data is None else _TypedText(data)

    def prepare_value(self, value: Any) -> Any:
        if isinstance(value, _TypedText):
            return value
        return _TypedText("" if value is None else _json_text(value))

    def to_python(self, value: Any) -> Any:
        text = str(value or "").strip()
        _no_null(text)
        return parse_json(text, MAX_STORED_DEPTH) if text else None

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return not is_same(self.to_python(data), initial)
        except ValidationError:
            return True


class ObjectField(JsonField):
    """A JSON object, one property on each line."""

    def to_python(self, value: Any) -> Any:
        properties = super().to_python(str(value or "").strip() or "{}")
        if not isinstance(properties, dict):
            raise ValidationError(_('Write an object: {"name": "value"}.'))
        return properties

    def has_changed(self, initial: Any, data: Any) -> bool:
        return super().has_changed(initial or {}, data)


class _NeverShown:
    """A widget that sends no value to the browser, not even the one that was just entered."""

    def format_value(self, value: Any) -> str:
        return ""


class _SecretTextarea(_NeverShown, Textarea):
    pass


class SecretInput(_NeverShown, TextInput):  # type: ignore[misc]  # unfold has no types
    """An input that never shows what was entered or stored."""

    def __init__(self, attrs: Any = None) -> None:
        super().__init__({"autocomplete": "off", "spellcheck": "false", **(attrs or {})})


class WriteOnly(forms.Field):
    """A field whose value is never shown. Left empty, it keeps the stored value (see `keep`)."""

    is_secret = True
    _stored_value: Any = None

    def keep(self, value: Any, description: str) -> None:
        """`description` describes the stored value without showing it."""
        if isinstance(value, Unreadable):
            self.required = True
            self.help_text = _("The stored value cannot be decrypted: enter it again.")
            return
        self._stored_value = value
        if value:
            self.required = False
            self.help_text = _("Never shown; leave it empty to keep it.")
        if value and description:
            # The theme shows help texts as HTML.
            words = _("%s Never shown; leave it empty to keep it.")
            self.help_text = words % escape(description)

    def clean(self, value: Any) -> Any:
        # Blanks count as empty, because a password manager or a paste may leave some.
        is_kept = not str(value or "").strip() and self._stored_value
        return self._stored_value if is_kept else super().clean(value)

    def has_changed(self, initial: Any, data: Any) -> bool:
        return bool(str(data or "").strip())


class SecretObjectField(WriteOnly, ObjectField):
    """Secrets by name, as JSON; write-only."""

    widget = _SecretTextarea


class SecretTextField(WriteOnly, forms.CharField):
    """One line of secret text; write-only."""

    widget = SecretInput
