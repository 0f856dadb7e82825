"""Try a filter on the latest messages of a subscription: the matches, and reasons for the rest."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from msgplatform.core.json.text import parse_json
from msgplatform.doors.admin import ModelAdmin, Textarea, sees_personal
from msgplatform.doors.admin.pages import show_page
from msgplatform.person_limits import answers_limited_people
from notify.messages import filtered
from notify.subscriptions import payload_filter
from notify.subscriptions.filter_conditions import Node


class FilterForm(forms.Form):
    """A filter, written as in a subscription: its form, too, posts it here before it is saved."""

    filter = forms.CharField(
        label=_("Filter"),
        required=False,
        widget=Textarea({"rows": 8, "class": "lines", "spellcheck": "false"}),
        help_text=_('{"data": {"total": {"$gt": 100}}}; nothing is saved here'),
    )

    def clean_filter(self) -> Node | None:
        return payload_filter.compiled(parse_json(self.cleaned_data["filter"] or "{}"))


def page(model_admin: ModelAdmin) -> Callable[[HttpRequest, int], HttpResponse]:
    """The view: GET tries the subscription's own filter, POST another one, for people who may see
    personal data: with filters of their own others would find it out letter by letter."""

    @answers_limited_people
    def view(request: HttpRequest, pk: int) -> HttpResponse:
        row = model_admin.get_queryset(request).filter(pk=pk).first()
        if row is None or not model_admin.has_view_permission(request, row):
            raise Http404(gettext("There is no such subscription."))
        own = {"filter": json.dumps(row.filter or {}, indent=2, ensure_ascii=False)}
        # Without the right to change the subscription its form posts no filter.
        form = FilterForm(request.POST if "filter" in request.POST else own, initial=own)
        form.fields["filter"].disabled = not sees_personal(request)
        context: dict[str, Any] = {}
        if form.is_valid():
            trial = filtered.try_filter(row, form.cleaned_data["filter"])
            part = "reason" if sees_personal(request) else "masked"
            context = {
                "lines": [(message, getattr(message.why, part, "")) for message in trial.messages],
                "matching": sum(message.why is None for message in trial.messages),
                "day": trial.day,
            }
        return show_page(
            model_admin, request, "notify/filter_trial.html", gettext("Try a filter"), row=row,
            form=form, **context,
        )  # fmt: skip

    return view
