"""The form that starts a bulk requeue."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from msgplatform.core import flows


class BulkForm(forms.Form):
    """A flow's filter fields, and how fast to go."""

    rate = forms.IntegerField(
        label=_("Messages per second"),
        min_value=0,
        max_value=100_000,
        required=False,
        help_text=_("Empty: as fast as it goes"),
    )

    def __init__(self, flow: flows.Flow, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.flow = flow
        for name, help_text in flow.filters.items():
            self.fields[name] = forms.CharField(
                label=name.capitalize(), required=False, max_length=200, help_text=help_text
            )

    def filter(self) -> dict[str, str]:
        """The filter fields that were filled in."""
        return {
            name: self.cleaned_data[name] for name in self.flow.filters if self.cleaned_data[name]
        }
