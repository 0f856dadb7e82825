"""The form of a policy: every mistake is explained at its field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from crmsync.models import Policy, Record
from crmsync.policies import mapping, schedule
from msgplatform.admin import Textarea
from msgplatform.admin.fields import LinesField
from msgplatform.core.errors import InvalidInput


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
        # An existing policy keeps its source, which is no field of its form then.
        source = form_values.get("source") or (self.instance.source if self.instance.pk else None)
        for name, check in (
            ("cron", schedule.check_cron), ("hours", schedule.check_hours),
            ("sweep_cron", schedule.check_cron),
        ):  # fmt: skip
            self._try(name, check, form_values.get(name))
        if source:
            columns = source.value_columns
            self._try("mapping", lambda text: mapping.parse(text).check_columns(columns),
                      form_values.get("mapping"))  # fmt: skip
            for name, column in (("biz", "biz_id"), ("appkeys", "appkey")):
                if form_values.get(name) and column not in columns:
                    words = gettext("The source has no column %s: leave this empty.")
                    self.add_error(name, words % column)
            if form_values.get("sweep_cron") and not source.version_column:
                words = gettext("The source has no version column to compare: leave this empty.")
                self.add_error("sweep_cron", words)
        self._check_prefix(form_values)
        return form_values

    def _try(self, name: str, check: Callable[[Any], None], value: Any) -> None:
        """Check a field's value; a mistake becomes the field's error."""
        if value and name in self.fields:
            try:
                check(value)
            except InvalidInput as error:
                self.add_error(name, str(error))

    def _check_prefix(self, form_values: dict[str, Any]) -> None:
        prefix, policy = form_values.get("key_prefix"), self.instance
        crm = form_values.get("crm") or (policy.crm if policy.pk else None)
        if prefix is None or crm is None:
            return
        # Keys of two sources may be equal numbers.
        other = Policy.objects.filter(crm=crm, key_prefix=prefix).exclude(pk=policy.pk).first()
        if other:
            self.add_error(
                "key_prefix",
                gettext("%s uses it: two sources of one CRM need different prefixes, or one "
                     "overwrites the other's records.") % other,
            )  # fmt: skip
        elif (
            policy.pk
            and prefix != self.initial.get("key_prefix")
            and (Record.objects.filter(policy_id=policy.pk).exists())
        ):
            self.add_error(
                "key_prefix",
                gettext("Records were sent under “%s”: with another prefix all of them would be "
                     "made a second time.") % self.initial.get("key_prefix"),
            )  # fmt: skip
