"""The forms of the console's pages; each flow defines their fields."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from msgplatform.core.flows.contract import Flow
from msgplatform.core.flows.messages import Fields, personal_names
from msgplatform.doors.admin import TextInput
from msgplatform.doors.console.fields import form_field, presets
from msgplatform.models import SavedFilter


class FilterForm(forms.Form):
    """A field for each of a flow's filter, which stays a text; the flow reads it.

    `clear`: for somebody who may see personal data. Others have no field for it, and an address
    with one is refused: without it, something else would be found than was asked for.
    """

    def __init__(
        self,
        flow: Flow,
        fields: Fields,
        page: str,
        clear: bool,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        refused_names = set() if clear else personal_names(fields)
        self._refused = {name: fields[name].label for name in refused_names}
        self._names = [name for name in fields if name not in self._refused]
        for name in self._names:
            self.fields[name] = form_field(name, fields[name], (flow.name, page))

    def clean(self) -> dict[str, Any]:
        for name, label in self._refused.items():
            if self.data.get(self.add_prefix(name)):
                text = gettext("“%s” is only for people who may see personal data.")
                self.add_error(None, text % label)
        return self.cleaned_data

    def filter(self) -> dict[str, str]:
        """The filter fields that were filled in."""
        return {name: self.cleaned_data[name] for name in self._names if self.cleaned_data[name]}

    def refuse(self, field: str, sentence: str) -> None:
        """Show the flow's error, at the field if the form has it."""
        self.add_error(field if field in self.fields else None, sentence)

    @property
    def presets(self) -> list[tuple[str, str, str]]:
        """Periods to choose from, if it asks for one."""
        return presets() if {"since", "until"} <= self.fields.keys() else []


class SearchForm(FilterForm):
    """The search over one flow's fields."""

    def __init__(self, flow: Flow, clear: bool, *args: Any, **kwargs: Any) -> None:
        super().__init__(flow, flow.messages.fields, SavedFilter.SEARCH, clear, *args, **kwargs)


class BulkForm(FilterForm):
    """A bulk action's filter, and its pace."""

    rate = forms.IntegerField(
        label=_("Messages per second"),
        min_value=1,
        max_value=100_000,
        required=False,
        help_text=_("Empty: the receiver's own limit, else as fast as possible"),
        widget=TextInput({"type": "number", "min": 1}),
    )

    def __init__(self, flow: Flow, action: str, clear: bool, *args: Any, **kwargs: Any) -> None:
        super().__init__(flow, flow.actions[action].fields, action, clear, *args, **kwargs)
        self.order_fields([*self._names, "rate"])

    @property
    def pace(self) -> int:
        """Messages per second; 0: nothing was asked."""
        return self.cleaned_data["rate"] or 0
