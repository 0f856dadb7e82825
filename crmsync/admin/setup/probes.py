"""Questions to other systems: a form that is posted unsaved, whose answer is a piece of the page;
and a trial lead, one made-up record that is sent to a CRM at once. Its page shows the calls, their
answers, and the CRM's record afterwards. The lead goes past the queues and is not counted."""

from __future__ import annotations

from functools import partial
from typing import Any

from django import forms
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext, gettext_lazy as _

from crmsync import trials
from msgplatform.doors.admin import ModelAdmin, TextInput, audit
from msgplatform.doors.admin.fields import ObjectField
from msgplatform.doors.admin.pages import send_form, show_page


def posted_form(
    model_admin: ModelAdmin, request: HttpRequest, pk: int | None
) -> forms.ModelForm[Any] | HttpResponse:
    """The form of a row, or of a new one, as it was posted; or an answer with the form's
    mistakes. Raises PermissionDenied, Http404."""
    row = None if pk is None else model_admin.row_for(request, pk)
    if row is None and not model_admin.has_add_permission(request):
        raise PermissionDenied
    form = model_admin.get_form(request, row, change=row is not None)(request.POST, instance=row)
    if form.is_valid():
        return form
    problems = [
        (form.fields[name].label if name in form.fields else "", " ".join(map(str, errors)))
        for name, errors in form.errors.items()
    ]
    return piece(request, "answer.html", tone="bad", wrong=problems)


def piece(request: HttpRequest, template: str, **context: Any) -> HttpResponse:
    """A part of a page; browsers must not store it, since it may show personal data."""
    response = TemplateResponse(request, f"admin/crmsync/{template}", context)
    response["Cache-Control"] = "no-store"
    return response


class TestLeadForm(forms.Form):
    """The record as the CRM gets it."""

    __test__ = False  # pytest takes the name for a test's

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


def page(model_admin: ModelAdmin, request: HttpRequest, pk: int) -> HttpResponse:
    """GET shows the form of a trial lead; POST sends the lead."""
    row = model_admin.row_for(request, pk)
    start = {"key": trials.usual_key(), "fields_sent": trials.usual_fields(row)}
    form = TestLeadForm(request.POST or None, initial=start)
    trial = send_form(form, lambda values: trials.send(
        row, values["key"], values["fields_sent"], values["remove"], partial(audit, request)
    ))  # fmt: skip
    return show_page(
        model_admin, request, "admin/crmsync/test_lead.html", gettext("Test lead"),
        row=row, form=form, outcome=trial, may_choose=True,
    )  # fmt: skip
