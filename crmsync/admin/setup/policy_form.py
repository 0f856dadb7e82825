"""The form of a policy: every mistake is explained at its field."""

from __future__ import annotations

from copy import copy
from typing import Any

from django import forms
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from crmsync import setup_rules
from crmsync.models import Policy
from msgplatform.admin import Textarea
from msgplatform.admin.fields import LinesField


class PolicyForm(forms.ModelForm):  # type: ignore[type-arg]  # it takes none at run time
    appkeys = LinesField(
        check=lambda appkey: None,
        label=_("APPKEYs"),
        help_text=_("Only leads of these landing pages, one on each line. Empty: all."),
    )
    mapping = forms.CharField(
        label=_("Mapping"),
        max_length=20_000,
        strip=False,
        widget=Textarea({"rows": 12, "class": "lines", "spellcheck": "false",
                         "placeholder": "LastName = name\nEmail = extra.email"}),
        help_text=_(
            "One line for each field of the CRM: LastName = name. A property of a JSON column: "
            'Email = extra.email. Several choices, of which the first that is not empty is sent: '
            'Company = extra.company or "-". Write text in quotation marks. An empty value is not '
            "sent; when the line ends with “or null”, it clears the field in the CRM."
        ),
    )  # fmt: skip

    class Meta:
        model = Policy
        fields = ["source", "crm", "enabled", "biz", "appkeys", "mapping", "key_prefix",
                  "on_conflict", "delete_adopted",
                  "interval_seconds", "cron", "hours", "batch_size", "sweep_cron"]  # fmt: skip

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

    def clean(self) -> dict[str, Any]:
        form_values = super().clean() or {}
        row = copy(self.instance)  # the form's own row must not change before it is valid
        for name, value in form_values.items():
            setattr(row, name, value)
        if row.source_id and row.crm_id:
            for name, sentence in setup_rules.policy_faults(row):
                # A field that has no valid value says so itself.
                if name in form_values:
                    self.add_error(name, sentence)
        return form_values
