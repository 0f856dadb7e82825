"""Sandbox CRMs in the console: the records that one holds, the calls that came, and its answers."""

from collections.abc import Mapping
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from crmsync.adapters import sandbox
from crmsync.adapters.sandbox import MAX_RECORDS, Call, Records, records_of
from crmsync.models import Crm, Policy, Source
from msgplatform.core import personal
from msgplatform.core.errors import InvalidInput
from msgplatform.core.sandbox import Behaviour
from msgplatform.doors.admin import TextInput, audit, sees_personal
from msgplatform.doors.admin.sandbox_pages import SandboxPages

_SHOWN = 200  # records on the page; the API has all
# The policy that comes with a sandbox. Its interval is short: a person waits for the first lead.
MAPPING = "name = name\nphone = phone\nappkey = appkey\nextra = extra"
INTERVAL_SECONDS = 2


class MakeForm(forms.Form):
    """A sandbox CRM that gets the platform's own leads."""

    name = forms.CharField(
        label=_("Name"), max_length=40, initial="sandbox",
        widget=TextInput({"autocomplete": "off"}),
        help_text=_("Lower-case letters, digits and -; cannot be changed later"),
    )  # fmt: skip


class SandboxCrms(SandboxPages):
    """The sandboxes of CRMs."""

    templates = "admin/crmsync"
    list_name, page_name = "crmsync_sandboxes", "crmsync_crm_sandbox"
    answers = [
        ("", _("stores the records")),
        (sandbox.INVALID, _("refuses the values: they are dead at once")),
        (sandbox.AUTH, _("refuses the credentials: pauses this CRM")),
        (sandbox.THROTTLED, _("429: wants fewer calls")),
        (sandbox.ERROR, _("500: fails")),
        (sandbox.DOWN, _("is down: no connection")),
        (sandbox.LOST, _("stores the records, and the answer is lost")),
    ]
    count_label = _("For so many calls")
    help_texts = {
        "delay": _("Seconds, 0 to 60"),
        "retry_after": _("Seconds, with 429 and 500"),
        "minutes": _("1 to 60, then it stores again"),
    }
    make_form = MakeForm
    make_permissions = ("crmsync.add_crm", "crmsync.add_policy")
    view_permissions = ("crmsync.view_record", "crmsync.view_lead")

    def make(self, request: HttpRequest, values: Mapping[str, Any]) -> Crm:
        """The CRM, with a policy from the hive."""
        row = Crm(name=values["name"], adapter=Crm.SANDBOX, settings={"space": values["name"]})
        try:
            row.full_clean()
        except ValidationError as error:
            texts = error.message_dict.get("name", error.messages)
            raise InvalidInput(" ".join(texts), "name") from None
        with transaction.atomic():
            row.save()
            policy = Policy.objects.create(
                source=Source.hive(), crm=row, mapping=MAPPING, interval_seconds=INTERVAL_SECONDS
            )
            audit(request, "crm_added", row.name, adapter=row.adapter)
            audit(request, "policy_added", str(policy), mapping=MAPPING)
        return row

    def list_context(self, request: HttpRequest) -> Mapping[str, Any]:
        user: Any = request.user
        rows = Crm.objects.filter(adapter=Crm.SANDBOX).order_by("name")[:500]
        return {"rows": rows, "may_look": user.has_perms(self.view_permissions)}

    def store(self, row: Crm) -> Records | None:
        return records_of(row.settings) if row.adapter == Crm.SANDBOX else None

    def describe(self, behaviour: Behaviour) -> Mapping[str, Any]:
        return {"answer": behaviour.answer or "store"}

    def context(self, request: HttpRequest, row: Crm) -> Mapping[str, Any]:
        store = records_of(row.settings)
        records, show = store.all(), dict if sees_personal(request) else personal.mask_value
        labels = dict(self.answers)
        return {
            "label": labels.get(store.behaviour().answer, ""),
            "records": [(record, show(record.fields)) for record in records[:_SHOWN]],
            "record_count": len(records), "max_records": MAX_RECORDS,
            "calls": [
                {
                    "id": entry.id, "at": entry.at, "call": entry.call,
                    "label": labels.get(entry.call.answer, entry.call.answer),
                    "is_stored": entry.call.answer in ("", sandbox.LOST),
                    "more": entry.call.count - len(entry.call.records),
                    "records": [(record, show(record.fields)) for record in entry.call.records],
                }
                for entry in store.calls(Call)
            ],
        }  # fmt: skip
