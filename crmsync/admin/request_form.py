"""The request of a dead record: its fields for a page, and a form to correct them."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from crmsync.models import RecoveryEntry
from crmsync.orders import Request
from msgplatform.core import personal
from msgplatform.core.characters import unify_line_ends
from msgplatform.core.errors import InvalidInput
from msgplatform.core.json.text import SYNTAX, parse_json
from msgplatform.doors.admin import TextInput

_LONG = 100  # characters from which on a value gets several lines
# Prefix for the names of form fields: the CRM's name could be the name of a button.
_PREFIX = "field-"


def request_of(entry: RecoveryEntry) -> Request | None:
    """The request that an entry keeps; None without one, or when it cannot be read."""
    if not entry.request:  # the entry is about an operation that its queue refused
        return None
    try:
        return msgspec.json.decode(bytes(entry.request), type=Request)
    except msgspec.DecodeError:
        return None


def masked_fields(request: Request | None, at_fault: str) -> list[dict[str, Any]]:
    """Name and masked text of each field, and whether it is at fault. A field that the CRM misses
    is included."""
    fields: Mapping[str, Any] = request.fields if request else {}
    rows = [
        {"name": name, "text": _text(personal.mask_value(value)), "is_wrong": name == at_fault}
        for name, value in fields.items()
    ]
    if request and not request.deleted and at_fault and at_fault not in fields:
        rows.append({"name": at_fault, "text": "", "is_wrong": True})
    return rows


class ValueField(forms.CharField):
    """Text stays text; a number, true, false, null or an object is written as JSON. An empty field
    is not sent."""

    def __init__(self, value: Any, **kwargs: Any) -> None:
        text = _text(value)
        is_long = len(text) > _LONG or "\n" in text or "\r" in text
        widget = forms.Textarea({"rows": 4}) if is_long else TextInput()
        super().__init__(required=False, initial=text, strip=False, widget=widget, **kwargs)
        # Never read text as JSON: "007" must not become 7.
        self.is_text = isinstance(value, str)
        self.stored = value

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        # Browsers send the line breaks of a text area as two characters.
        stored_text, text_lines = _text(self.stored), unify_line_ends(text)
        if text_lines == unify_line_ends(stored_text):
            return self.stored
        text = text if "\r\n" in stored_text else text_lines
        if self.is_text or not text.strip():
            return text
        try:
            return parse_json(text)
        except ValidationError as error:
            if error.code != SYNTAX:
                raise
            raise ValidationError(
                _("Write it as JSON: a number, true, false, null, or text in quotation marks.")
            ) from None


class RequestForm(forms.Form):
    """A form field for each field of the request. The field at fault shows the CRM's reason."""

    def __init__(self, fields: Mapping[str, Any], entry: RecoveryEntry, data: Any = None) -> None:
        super().__init__(data)
        self.entry = entry
        all_fields = dict(fields)
        if entry.field and entry.field not in all_fields:
            # A field that the CRM misses is offered too.
            all_fields[entry.field] = ""
        for name, value in all_fields.items():
            self.fields[_PREFIX + name] = ValueField(value, label=name)

    def lines(self) -> list[dict[str, Any]]:
        """The lines of the template, the field at fault first."""
        lines = [
            {"field": self[name], "is_wrong": name == _PREFIX + self.entry.field}
            for name in self.fields
        ]
        return sorted(lines, key=lambda line: not line["is_wrong"])

    def values(self) -> dict[str, Any]:
        """The fields to be sent; empty ones are left out."""
        return {
            name.removeprefix(_PREFIX): value
            for name, value in self.cleaned_data.items()
            if value != ""
        }

    def refuse(self, error: InvalidInput) -> None:
        """Show an error at its field, if there is one."""
        name = _PREFIX + error.field
        self.add_error(name if name in self.fields else None, str(error))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
