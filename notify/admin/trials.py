"""Trials of a subscription: a test send to its consumer, and a filter on its latest messages."""

import json
from functools import partial
from typing import Any

import msgspec
from django import forms
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext, gettext_lazy as _

from msgplatform import person_limits
from msgplatform.core.errors import InvalidInput
from msgplatform.core.json import schema as json_schema
from msgplatform.core.json.text import SYNTAX, parse_json
from msgplatform.doors.admin import ModelAdmin, Select, Textarea, audit, sees_personal
from msgplatform.doors.admin.pages import send_form, show_page
from msgplatform.monitor.failure_groups import answer_title
from notify.messages import filtered
from notify.models import EventType
from notify.sender import trial_send
from notify.subscriptions import payload_filter
from notify.subscriptions.filter_conditions import Node
from notify.subscriptions.limits import shown_url

# Event types to choose from; a catalogue that is longer is used over the API.
_MAX_TYPES = 500


class TrialSendForm(forms.Form):
    event_type = forms.ChoiceField(
        label=_("Event type"), widget=Select, help_text=_("From the catalogue of event types")
    )
    payload = forms.CharField(
        label=_("Payload"),
        widget=Textarea({"rows": 8, "class": "lines", "spellcheck": "false"}),
        strip=False,
        help_text=_("JSON, sent as it stands here"),
    )

    def __init__(self, types: dict[str, EventType], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = [trial_send.TEST_EVENT_TYPE, *types]
        choice: Any = self.fields["event_type"]
        choice.choices = [(name, name) for name in dict.fromkeys(names)]

    def clean_payload(self) -> str:
        return payload_of(self.cleaned_data["payload"])


def sees_urls(request: HttpRequest) -> bool:
    """True if the person sees the whole URLs of consumers, which may hold a token."""
    may_change = request.user.has_perm("notify.change_receive")
    return may_change and not person_limits.is_limited(request)


def payload_of(text: str) -> str:
    """The payload in a text area. Raises ValidationError, with line and column, for a text that is
    no JSON; intake or the consumer judges everything else."""
    try:
        parse_json(text)
    except ValidationError as error:
        if error.code == SYNTAX:
            raise
    return text


@person_limits.answers_limited_people
def send_page(model_admin: ModelAdmin, request: HttpRequest, pk: int) -> HttpResponse:
    """The view: GET shows the form, with the example of the type that the address names; POST
    sends. A POST without a type sends the usual test."""
    row = model_admin.row_for(request, pk, verb="")  # permissions are checked below
    # An operator may send the usual test; other signed events need the right to change the row.
    may_choose = model_admin.has_change_permission(request, row)
    is_usual = request.method == "POST" and "event_type" not in request.POST
    if not (may_choose or (is_usual and model_admin.has_operate_permission(request, row))):
        raise PermissionDenied
    # The catalogue for the subscription's system: its own entries go before shared entries.
    entries = EventType.objects.filter(Q(owner=0) | Q(owner=row.biz_id))
    rows = entries.order_by("name", "owner").defer("schema", "example", "description")[:_MAX_TYPES]
    types = {entry.name: entry for entry in rows}
    usual = {"event_type": trial_send.TEST_EVENT_TYPE, "payload": trial_send.usual_payload(row)}
    initial = usual
    if entry := types.get(request.GET.get("event_type", "")):
        example = {} if entry.example is None else entry.example
        payload = json.dumps(example, indent=2, ensure_ascii=False)
        initial = {"event_type": entry.name, "payload": payload}
    form = TrialSendForm(types, usual if is_usual else request.POST or None, initial=initial)
    outcome = send_form(form, lambda values: trial_send.try_consumer(
        row, values["event_type"], values["payload"], partial(audit, request)
    ))  # fmt: skip
    context: dict[str, Any] = {}
    if outcome:
        values = form.cleaned_data
        context = {
            "error": outcome.detail or answer_title(outcome.error),
            "url": outcome.url if sees_urls(request) else shown_url(outcome.url),
            "mismatch": _mismatch(types.get(values["event_type"]), values["payload"]),
        }
    return show_page(
        model_admin, request, "notify/test_send.html", gettext("Test send"), row=row, form=form,
        may_choose=may_choose, outcome=outcome, **context,
    )  # fmt: skip


def _mismatch(entry: EventType | None, payload: str) -> str:
    """The reason why a validating intake would refuse the payload; '' if it would not."""
    if entry is None or not entry.schema:
        return ""
    try:
        schema = json_schema.compile_schema(entry.schema)
        mismatch = json_schema.first_error(schema, msgspec.json.decode(payload))
    except (InvalidInput, RecursionError):
        return gettext("The payload could not be compared with the JSON Schema of this event type.")
    if mismatch is None:
        return ""
    text = gettext("The payload does not match the JSON Schema: payload%(path)s: %(reason)s")
    return text % {"path": mismatch.path, "reason": mismatch.reason}


class FilterForm(forms.Form):
    """A filter, written as in a subscription, whose form posts it here before it is saved."""

    filter = forms.CharField(
        label=_("Filter"),
        required=False,
        widget=Textarea({"rows": 8, "class": "lines", "spellcheck": "false"}),
        help_text=_('{"data": {"total": {"$gt": 100}}}; nothing is saved here'),
    )

    def clean_filter(self) -> Node | None:
        return payload_filter.compiled(parse_json(self.cleaned_data["filter"] or "{}"))


@person_limits.answers_limited_people
def filter_page(model_admin: ModelAdmin, request: HttpRequest, pk: int) -> HttpResponse:
    """The view: GET tries the subscription's own filter. POST tries another filter, if the person
    may see personal data: filters of one's own could find it out letter by letter."""
    row = model_admin.row_for(request, pk, "view")
    values = {"filter": json.dumps(row.filter or {}, indent=2, ensure_ascii=False)}
    # Without the right to change the subscription its form posts no filter.
    form = FilterForm(request.POST if "filter" in request.POST else values, initial=values)
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
