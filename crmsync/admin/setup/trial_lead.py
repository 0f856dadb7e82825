"""A trial lead: one made-up record, sent to a CRM at once. The page shows the calls, their answers,
and the CRM's record afterwards. The lead goes past the queues and is not counted."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from django import forms
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from crmsync.models import Crm
from crmsync.trials import lead
from msgplatform.doors.admin import ModelAdmin, TextInput, audit
from msgplatform.doors.admin.fields import ObjectField
from msgplatform.doors.admin.pages import send_form, show_page


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


def page(model_admin: ModelAdmin) -> Callable[[HttpRequest, int], HttpResponse]:
    def view(request: HttpRequest, pk: int) -> HttpResponse:
        row = Crm.objects.filter(pk=pk).first()
        if row is None:
            raise Http404(gettext("There is no such CRM."))
        if not model_admin.has_change_permission(request, row):
            raise PermissionDenied
        start = {"key": lead.usual_key(), "fields_sent": lead.usual_fields(row)}
        form = TestLeadForm(request.POST or None, initial=start)
        trial = send_form(form, lambda values: lead.send(
            row, values["key"], values["fields_sent"], values["remove"], partial(audit, request)
        ))  # fmt: skip
        return show_page(
            model_admin, request, "admin/crmsync/test_lead.html", gettext("Test lead"),
            row=row, form=form, outcome=trial, may_choose=True,
        )  # fmt: skip

    return view
