"""The page of a sandbox CRM: the records that it holds, the calls that came, and how it answers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from django import forms
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from crmsync.adapters.sandbox import adapter
from crmsync.adapters.sandbox.store import MAX_RECORDS, Call, Records, StoredRecord
from crmsync.models import Crm, Policy, Source
from msgplatform.admin import ModelAdmin, Select, TextInput, audit, sandbox_form, sees_personal
from msgplatform.core import personal, sandbox
from msgplatform.core.connections import RedisError
from msgplatform.core.sandbox import Behaviour

REFRESH_SECONDS = 3
_SHOWN = 200  # records on the page; the API has all
_VIEW = ("crmsync.view_record", "crmsync.view_lead")
_MAKE = ("crmsync.add_crm", "crmsync.add_policy")
# Of the policy that comes with a sandbox: a person waits for the first lead.
MAPPING = "name = name\nphone = phone\nappkey = appkey\nextra = extra"
INTERVAL_SECONDS = 2
ANSWERS = [
    ("", _("stores the records")),
    (adapter.INVALID, _("refuses the values: they are dead at once")),
    (adapter.AUTH, _("refuses the credentials: pauses this CRM")),
    (adapter.THROTTLED, _("429: wants fewer calls")),
    (adapter.ERROR, _("500: fails")),
    (adapter.DOWN, _("is down: no connection")),
    (adapter.LOST, _("stores the records, and the answer is lost")),
]
_LABELS = dict(ANSWERS)


class BehaviourForm(sandbox_form.BehaviourForm):
    """How the sandbox answers, and for how long."""

    answer = forms.ChoiceField(label=_("Answer"), choices=ANSWERS, widget=Select, required=False)
    labels = {"count": _("For so many calls")}
    help_texts = {
        "delay": _("Seconds, 0 to 60"),
        "retry_after": _("Seconds, with 429 and 500"),
        "minutes": _("1 to 60, then it stores again"),
    }

    def behaviour(self) -> Behaviour:
        """The behaviour that was filled in."""
        values = self.cleaned_data
        delay, retry_after = values["delay"] or 0.0, values["retry_after"] or 0
        if not (values["answer"] or delay):
            return sandbox.USUAL
        return Behaviour(values["answer"], delay, retry_after, count=values["count"])


class MakeForm(forms.Form):
    """A sandbox CRM that gets the platform's own leads."""

    name = forms.CharField(
        label=_("Name"), max_length=40, widget=TextInput({"autocomplete": "off"}),
        help_text=_("Lower-case letters, digits and -; cannot be changed later"),
    )  # fmt: skip

    def save(self, request: HttpRequest) -> Crm | None:
        """The CRM with a policy from the hive; None when the name is refused."""
        row = Crm(name=self.cleaned_data["name"], adapter=Crm.SANDBOX)
        row.settings = {"space": row.name}
        try:
            row.full_clean()
        except ValidationError as error:
            self.add_error("name", error.message_dict.get("name", error.messages))
            return None
        with transaction.atomic():
            row.save()
            policy = Policy.objects.create(
                source=Source.hive(), crm=row, mapping=MAPPING, interval_seconds=INTERVAL_SECONDS
            )
            audit(request, "crm_added", row.name, adapter=row.adapter)
            audit(request, "policy_added", str(policy), mapping=MAPPING)
        return row


def list_page(model_admin: ModelAdmin) -> Callable[[HttpRequest], HttpResponse]:
    """The page of all sandbox CRMs; a POST makes one with its policy, and leads to it."""

    def view(request: HttpRequest) -> HttpResponse:
        if not model_admin.has_view_permission(request):
            raise PermissionDenied
        user: Any = request.user
        may_make = user.has_perms(_MAKE) and sandbox.is_on()
        if request.method == "POST" and not may_make:
            raise PermissionDenied
        form = MakeForm(request.POST or None, initial={"name": "sandbox"})
        if form.is_valid() and (row := form.save(request)):
            return redirect("admin:crmsync_crm_sandbox", row.pk)
        context = {
            **model_admin.admin_site.each_context(request),
            "title": gettext("Sandbox"), "opts": model_admin.opts, "form": form,
            "rows": Crm.objects.filter(adapter=Crm.SANDBOX).order_by("name")[:500],
            "may_make": may_make, "is_on": sandbox.is_on(), "may_look": user.has_perms(_VIEW),
        }  # fmt: skip
        return TemplateResponse(request, "admin/crmsync/sandboxes.html", context)

    return view


def page(model_admin: ModelAdmin) -> Callable[[HttpRequest, int], HttpResponse]:
    def view(request: HttpRequest, pk: int) -> HttpResponse:
        row = Crm.objects.filter(pk=pk).first()
        store = adapter.records_of(row.adapter, row.settings) if row else None
        if row is None or store is None:
            raise Http404(gettext("There is no such sandbox."))
        user: Any = request.user
        if not (model_admin.has_view_permission(request, row) and user.has_perms(_VIEW)):
            raise PermissionDenied
        may_operate = model_admin.has_operate_permission(request, row)
        form = BehaviourForm(request.POST if "minutes" in request.POST else None)
        if request.method == "POST":
            if not may_operate:
                raise PermissionDenied
            if _change(request, row, store, form):
                return redirect(request.path)
        context = {
            **model_admin.admin_site.each_context(request),
            "title": gettext("Sandbox"), "opts": model_admin.opts, "row": row, "form": form,
            "may_operate": may_operate, "seconds": REFRESH_SECONDS, "is_on": sandbox.is_on(),
            "keep_minutes": sandbox.KEEP_SECONDS // 60, "max_records": MAX_RECORDS,
            "max_calls": sandbox.MAX_CALLS, **_content(request, store),
        }  # fmt: skip
        template = "sandbox_parts.html" if "live" in request.GET else "sandbox.html"
        response = TemplateResponse(request, f"admin/crmsync/{template}", context)
        response["Cache-Control"] = "no-store"  # it shows leads
        return response

    return view


def _change(request: HttpRequest, row: Crm, store: Records, form: BehaviourForm) -> bool:
    def record(behaviour: Behaviour) -> None:
        audit(request, "sandbox_behaviour", row.name, answer=behaviour.answer or "store")

    return sandbox_form.change(request, form, store.calls, store.empty, row.name, record)


def _content(request: HttpRequest, store: Records) -> dict[str, Any]:
    try:
        records, calls = store.all(), store.calls.calls(Call)
        behaviour = store.calls.behaviour()
    except RedisError:
        return {"is_unavailable": True}
    may_see = sees_personal(request)
    return {
        "behaviour": {
            "is_usual": behaviour == sandbox.USUAL, "label": _LABELS.get(behaviour.answer, ""),
            "delay": behaviour.delay, "count": behaviour.count, "until": _moment(behaviour.until),
        },
        "records": [_record(record, may_see) for record in records[:_SHOWN]],
        "record_count": len(records),
        "calls": [_call(at, call, may_see) for at, call in calls],
    }  # fmt: skip


def _record(record: StoredRecord, may_see: bool) -> dict[str, Any]:
    values = record.fields if may_see else personal.masked(record.fields)
    return {
        "key": record.key, "version": record.version, "fields": values,
        "at": _moment(record.at),
    }  # fmt: skip


def _call(at: float, call: Call, may_see: bool) -> dict[str, Any]:
    return {
        "id": f"{at:.6f}".replace(".", "-"), "at": _moment(at), "delay": call.delay,
        "label": _LABELS.get(call.answer, call.answer), "is_stored": call.answer in ("", "lost"),
        "count": call.count, "more": call.count - len(call.records),
        "records": [
            {"key": each.key, "version": each.version, "is_deleted": each.is_deleted,
             "fields": each.fields if may_see else personal.masked(each.fields)}
            for each in call.records
        ],
    }  # fmt: skip


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
