"""The forms of the console's pages; each flow defines their fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from msgplatform.core import flows

MAX_LENGTH = 200
MAX_SELECTION_LENGTH = 12_000  # some hundred ids
# Labels of fields whose name in the API is not what people would say.
_LABELS: Mapping[str, Any] = {
    "id": _("Message id"),
    "ids": _("Message ids"),
    "biz": _("Business system"),
    "key": _("Idempotency key"),
    "uid": "UID",
    "appkey": "APPKEY",
    "crm": _("CRM"),
    "remote_id": _("Id in the CRM"),
}


class FilterForm(forms.Form):
    """One line of text for each field of a flow's filter; the flow reads it."""

    def __init__(self, fields: Mapping[str, flows.Text], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._names = list(fields)
        for name, help_text in fields.items():
            self.fields[name] = forms.CharField(
                label=_LABELS.get(name) or name.replace("_", " ").capitalize(),
                required=False,
                max_length=MAX_SELECTION_LENGTH if name == "ids" else MAX_LENGTH,
                help_text=str(help_text),
            )

    def filter(self) -> dict[str, str]:
        """The filter fields that were filled in."""
        return {name: self.cleaned_data[name] for name in self._names if self.cleaned_data[name]}

    def refuse(self, field: str, sentence: str) -> None:
        """Show the flow's error, at the field if the form has it."""
        self.add_error(field if field in self.fields else None, sentence)


class BulkForm(FilterForm):
    """A bulk action's filter, and its rate."""

    rate = forms.IntegerField(
        label=_("Messages per second"),
        min_value=1,
        max_value=100_000,
        required=False,
        help_text=_("Empty: as fast as possible"),
    )

    def __init__(self, action: flows.BulkAction, *args: Any, **kwargs: Any) -> None:
        super().__init__(action.filters, *args, **kwargs)
        self.order_fields([*self._names, "rate"])

    @property
    def pace(self) -> int:
        """Messages per second; 0: as fast as possible."""
        return self.cleaned_data["rate"] or 0
