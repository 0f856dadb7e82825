"""A trial lead: one made-up record, sent to a CRM at once. The page shows the calls, their answers,
and the CRM's record afterwards. The lead goes past the queues and is not counted."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from django import forms
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from crmsync.adapters.base import CRMAdapter, Record, Stored
from crmsync.adapters.client import record_answers
from crmsync.adapters.outcomes import Ok, Outcome, sentence
from crmsync.adapters.registry import open_adapter
from crmsync.admin.setup import probes
from crmsync.models import Crm, Policy
from crmsync.policies import mapping
from msgplatform.admin import ModelAdmin, TextInput, audit
from msgplatform.admin.fields import ObjectField
from msgplatform.core.errors import InvalidInput, PlatformError
from msgplatform.core.http.engine import Request, Response

_KEY = re.compile(r"test-[A-Za-z0-9-]{1,40}")
_SHOWN = 16_384  # characters of a body
# Session tokens in a CRM's answers; the adapter masks the credentials themselves.
_TOKEN = re.compile(r'("[^"]*(?:token|session|secret|password)[^"]*"\s*:\s*)"[^"]*"', re.I)


class TestLeadForm(forms.Form):
    """The record as the CRM gets it."""

    __test__ = False  # to pytest the name looks like a test's

    key = forms.CharField(
        label=_("Key"),
        max_length=45,
        widget=TextInput({"autocomplete": "off"}),
        help_text=_("Begins with test-, so that no real lead is changed"),
    )
    fields_sent = ObjectField(
        label=_("Fields"), rows=10, help_text=_("By the names that the CRM has, as JSON")
    )
    remove = forms.BooleanField(
        label=_("Delete it from the CRM afterwards"), required=False, initial=True
    )

    def clean_key(self) -> str:
        key: str = self.cleaned_data["key"]
        if not _KEY.fullmatch(key):
            raise forms.ValidationError(gettext("Use test- and letters, digits or -."))
        return key


@dataclass(frozen=True)
class Call:
    """A request and its answer over HTTP, without secrets."""

    request: str
    status: int
    seconds: float
    answer: str


@dataclass(frozen=True)
class Trial:
    """The result; `removed` is None when the lead was to be left in the CRM."""

    outcome: Outcome
    calls: Sequence[Call]
    stored: Stored | None
    removed: Outcome | None

    @property
    def held(self) -> str:
        """The CRM's record before it was deleted, as JSON; '' when it was not found."""
        record = self.stored
        if record is None:
            return ""
        return json.dumps(dict(record.fields), indent=2, ensure_ascii=False, default=str)

    @property
    def is_good(self) -> bool:
        return isinstance(self.outcome, Ok)

    @property
    def words(self) -> str:
        if not isinstance(self.outcome, Ok):
            return sentence(self.outcome)
        return gettext("The CRM took it; its id there is %s.") % (self.outcome.remote_id or "–")

    @property
    def removal(self) -> str:
        if self.removed is None:
            return gettext("It was left in the CRM.")
        if isinstance(self.removed, Ok):
            return gettext("It was deleted from the CRM afterwards.")
        return gettext("It could not be deleted afterwards. %s") % sentence(self.removed)


def page(model_admin: ModelAdmin) -> Callable[[HttpRequest, int], HttpResponse]:
    def view(request: HttpRequest, pk: int) -> HttpResponse:
        row = Crm.objects.filter(pk=pk).first()
        if row is None:
            raise Http404(gettext("There is no such CRM."))
        if not model_admin.has_change_permission(request, row):
            raise PermissionDenied
        form = TestLeadForm(request.POST or None, initial=_initial(row))
        trial, problem = None, ""
        if form.is_valid():
            audit(request, "crm_test_lead_sent", row.name, key=form.cleaned_data["key"])
            try:
                trial = _try_lead(row, form.cleaned_data)
            except PlatformError as error:
                problem = probes.sentence(error)
        context = {
            **model_admin.admin_site.each_context(request),
            "title": gettext("Test lead"), "opts": model_admin.opts, "row": row, "form": form,
            "trial": trial, "problem": problem,
        }  # fmt: skip
        response = TemplateResponse(request, "admin/crmsync/test_lead.html", context)
        response["Cache-Control"] = "no-store"
        return response

    return view


def _initial(row: Crm) -> dict[str, Any]:
    """A new key, and the fields that the CRM's policies fill in."""
    names: list[str] = []
    for text in Policy.objects.filter(crm=row).values_list("mapping", flat=True)[:20]:
        with suppress(InvalidInput):  # an alert about the policy says so
            names += mapping.parse(text).fields
    return {"key": f"test-{int(time.time())}", "fields_sent": dict.fromkeys(names, "test")}


def _try_lead(row: Crm, form_values: dict[str, Any]) -> Trial:
    """Raises PlatformError when the CRM cannot be asked, or has no such field."""
    name, settings, credentials = row.adapter, row.settings, row.credentials
    record = Record(form_values["key"], int(time.time()), form_values["fields_sent"])

    def work() -> Trial:
        adapter = open_adapter(name, settings, credentials)
        try:
            # Signs in too, so the login is not among the calls on the page.
            adapter.check_mapping(list(record.fields))
            return _send(adapter, record, bool(form_values["remove"]))
        finally:
            adapter.close()

    return probes.ask(work)


def _send(adapter: CRMAdapter, record: Record, remove: bool) -> Trial:
    with record_answers() as answers:
        (outcome,) = adapter.send([record])
    calls = [_call(adapter, answer) for answer in answers]
    crm_record = None
    with suppress(PlatformError):  # not every CRM can be read
        crm_record = adapter.read([record.key]).get(record.key)
    removal_outcome: Outcome | None = None
    if remove and isinstance(outcome, Ok):
        deletion = Record(record.key, record.version + 1, {}, True, outcome.remote_id)
        (removal_outcome,) = adapter.send([deletion])
    return Trial(outcome, calls, crm_record, removal_outcome)


def _call(adapter: CRMAdapter, answer: Response) -> Call:
    def clean(text: bytes) -> str:
        words = text[: 4 * _SHOWN].decode("utf-8", "replace")[:_SHOWN]
        return _TOKEN.sub(r'\1"•••"', adapter.without_secrets(words))

    return Call(
        request="\n".join([*_head(adapter, answer.request), "", clean(answer.request.body)]),
        status=answer.status,
        seconds=answer.seconds,
        answer=clean(answer.body) or answer.detail,
    )


def _head(adapter: CRMAdapter, request: Request) -> list[str]:
    """Method, address and headers; of those that may sign in only the name."""
    lines = [f"{request.method} {adapter.without_secrets(request.url)}"]
    for name, value in request.headers:
        text = value if name.lower() in ("content-type", "accept") else "•••"
        lines.append(f"{name}: {text}")
    return lines
