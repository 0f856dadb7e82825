"""The form of a policy: every mistake is explained at its field."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils import timezone
from django.utils.translation import gettext

from msgplatform.admin import ResourceForm, Textarea


class MappingField(forms.CharField):
    def __init__(self, **options: Any) -> None:
        widget = Textarea({"rows": 12, "class": "lines", "spellcheck": "false",
                           "placeholder": "LastName = name\nEmail = extra.email"})  # fmt: skip
        super().__init__(max_length=20_000, strip=False, widget=widget, **options)


class PolicyForm(ResourceForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("source", "crm"):
            if name in self.fields:
                # No pencil beside the choice: it would open another form over a half-filled one.
                self.fields[name].widget.can_change_related = False
                self.fields[name].widget.can_view_related = False
        for name in ("cron", "hours", "sweep_cron"):
            if name in self.fields:
                # The reader's own zone may be another one.
                self.fields[name].help_text = gettext("Times in %(zone)s. %(help)s") % {
                    "zone": timezone.get_default_timezone_name(),
                    "help": self.fields[name].help_text,
                }
