"""Publish a test event from the console. The event is real and goes through the intake."""

import json
import re
import secrets
from collections.abc import Mapping
from functools import partial
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.html import format_html
from django.utils.translation import gettext, gettext_lazy as _

from msgplatform import person_limits
from msgplatform.core.errors import Conflict, InvalidInput, OutcomeUnknown, Unavailable
from msgplatform.doors.admin import ModelAdmin, Select, Textarea, TextInput, audit, next_page
from msgplatform.doors.admin.pages import send_form, show_page
from msgplatform.models import Biz
from notify.admin.trials import payload_of
from notify.intake import catalogue, intake
from notify.models import EventType

PERMISSIONS = ("notify.add_bizmsg", "notify.view_bizmsg")
USUAL_TYPE = "order.paid"
USUAL_PAYLOAD = {"order": 7, "amount": "99.00"}
_MAX_TYPES = 500


class PublishForm(forms.Form):
    system = forms.ModelChoiceField(
        Biz.objects.filter(enabled=True).order_by("name"),
        label=_("Business system"), widget=Select, empty_label=None, to_field_name="name",
        help_text=_("The event is published as if this system had done it"),
    )  # fmt: skip
    event_type = forms.CharField(
        label=_("Event type"), max_length=128,
        widget=TextInput({"list": "event-types", "autocomplete": "off"}),
        help_text=_("Such as order.paid; the list has those of the catalogue"),
    )  # fmt: skip
    channel = forms.CharField(
        label=_("Channel"), max_length=64, required=False,
        widget=TextInput({"autocomplete": "off"}), help_text=_("Empty: none"),
    )  # fmt: skip
    payload = forms.CharField(
        label=_("Payload"),
        widget=Textarea({"rows": 10, "class": "lines", "spellcheck": "false"}),
        strip=False,
        help_text=_("JSON. It is delivered to every subscription, real consumers too"),
    )
    # The idempotency key: a form that is sent twice publishes one event.
    key = forms.CharField(max_length=64, widget=forms.HiddenInput)

    def clean_payload(self) -> str:
        return payload_of(self.cleaned_data["payload"])


@person_limits.answers_limited_people
def page(model_admin: ModelAdmin, request: HttpRequest) -> HttpResponse:
    """GET shows the form, with a sample for the type that the address names; POST publishes and
    leads to the page `next`, or to the message."""
    user: Any = request.user
    if not user.has_perms(PERMISSIONS):
        raise PermissionDenied
    # The systems for which this person may publish.
    rows = Biz.objects.filter(enabled=True).order_by("name")
    ids = person_limits.ids_of(request)
    systems = rows if ids is None else rows.filter(pk__in=ids)
    name = request.POST.get("system") or request.GET.get("system", "")
    row = systems.filter(name=name).first() or systems.first()
    system = row.name if row else ""
    type_name, entries = request.GET.get("event_type", ""), _types(system)
    # The list from which a type was chosen may have been that of another system.
    entry = entries.filter(name=type_name).first() or entries.first()
    payload: Any = USUAL_PAYLOAD
    if entry is not None:
        payload = entry.example if entry.example is not None else sample(entry.schema or {})
    form = PublishForm(
        request.POST or None,
        initial={
            "system": system,
            "event_type": entry.name if entry else type_name or USUAL_TYPE,
            "payload": json.dumps(payload, indent=2, ensure_ascii=False),
            "key": f"console-{secrets.token_hex(12)}",
        },
    )
    choice: Any = form.fields["system"]
    choice.queryset = systems
    message = send_form(form, partial(_publish, request), {
        Conflict: _("This form was sent before, with other values. Open it anew."),
        OutcomeUnknown: _("It is not known whether it was stored. Send it once more."),
        Unavailable: _("The database does not answer: nothing was stored."),
    })  # fmt: skip
    if message:
        next_url = next_page(request)
        if not next_url:
            return redirect("console:message", "notify", message)
        link = '<a href="/console/notify/{}">{}</a>'
        messages.success(
            request, format_html(gettext("The event was accepted: %s") % link, message, message)
        )
        return redirect(next_url)
    names = _types(system).values_list("name", flat=True)[:_MAX_TYPES]
    return show_page(
        model_admin, request, "notify/publish.html", gettext("Publish a test event"), form=form,
        types=list(dict.fromkeys(names)), has_types=EventType.objects.exists(),
        next=next_page(request), systems=systems,
        has_systems=person_limits.is_limited(request) or Biz.objects.exists(),
    )  # fmt: skip


def _types(system: str) -> QuerySet[EventType]:
    """The catalogue for this system. The system's own entries go before shared entries."""
    return EventType.objects.filter(Q(owner=0) | Q(biz__name=system)).order_by("name", "-owner")


def _publish(request: HttpRequest, values: Mapping[str, Any]) -> str:
    """Publish the event; returns the message's id. Raises InvalidInput, Conflict and the errors of
    `intake.publish`."""
    biz, event_type, payload = values["system"].pk, values["event_type"], values["payload"].encode()
    try:
        catalogue.check(biz, event_type, payload)
        event = intake.Event(biz, event_type, payload, values["key"], values["channel"])
        verdict = intake.publish(event)
        verdict.raise_rejected()
    except InvalidInput as error:
        # The form has a field for the whole payload, not for the place in it.
        raise InvalidInput(error.args[0], re.split(r"[.[]", error.field)[0]) from None
    if verdict.outcome == "created":
        audit(request, "event_published", str(verdict.id), event_type=event_type)
    return str(verdict.id)


# -- a sample payload -----------------------------------------------------------------------------
_MAX_DEPTH = 12
_MAX_CHARACTERS = 64 * 1024  # about as many as a schema may have
_CHARACTERS_A_VALUE = 16  # its name and its line, roughly
_BY_FORMAT = {
    "date-time": "2026-01-31T08:00:00Z", "date": "2026-01-31", "time": "08:00:00Z",
    "email": "somebody@example.com", "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}  # fmt: skip


def sample(schema: Any, root: Any = None, depth: int = 0, room: list[int] | None = None) -> Any:
    """A value for a JSON Schema, as a start for a test. `root` is the document that references lead
    into, `room` holds the number of characters that the sample may still have.

    The sample follows examples, defaults, choices, types and properties. It need not match:
    patterns and conditions are left to the person who edits the sample, and so are the parts for
    which there is no room, since references may make a small schema as large as they like.
    """
    root = schema if root is None else root
    room = [_MAX_CHARACTERS] if room is None else room
    room[0] -= _CHARACTERS_A_VALUE
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH or room[0] < 0:
        return {}
    if isinstance(reference := schema.get("$ref"), str):
        # The schema at a reference such as #/$defs/line; {} for other references.
        place = root
        for name in reference.removeprefix("#/").split("/") if reference[:2] == "#/" else ["#"]:
            place = place.get(name, {}) if isinstance(place, Mapping) else {}
        return sample(place, root, depth + 1, room)
    for name in ("examples", "enum"):
        if isinstance(values := schema.get(name), list) and values:
            return _take_room(values[0], room)
    for name in ("const", "default"):
        if name in schema:
            return _take_room(schema[name], room)
    for name in ("allOf", "anyOf", "oneOf"):
        if isinstance(parts := schema.get(name), list) and parts and "properties" not in schema:
            return sample(parts[0], root, depth + 1, room)
    return _of_type(schema, root, depth, room)


def _of_type(schema: Mapping[str, Any], root: Any, depth: int, room: list[int]) -> Any:
    kinds = schema.get("type", "object")
    kind = kinds[0] if isinstance(kinds, list) and kinds else kinds
    if kind == "object":
        properties = schema.get("properties")
        parts = properties if isinstance(properties, Mapping) else {}
        _take_room([*parts], room)
        return {name: sample(part, root, depth + 1, room) for name, part in parts.items()}
    if kind == "array":
        count = max(1, _length(schema, "minItems", 5))
        return [sample(schema.get("items", {}), root, depth + 1, room) for _ in range(count)]
    if kind in ("integer", "number"):
        return _take_room(schema.get("minimum", schema.get("maximum", 1)), room)
    if kind == "string":
        text = _BY_FORMAT.get(str(schema.get("format")), "text")
        return _take_room(text.ljust(_length(schema, "minLength", 1000), "x"), room)
    return {"boolean": True}.get(str(kind))


def _take_room(value: Any, room: list[int]) -> Any:
    """Take the characters of a value from the room. Returns the value."""
    room[0] -= len(json.dumps(value))
    return value


def _length(schema: Mapping[str, Any], name: str, limit: int) -> int:
    """A length of a schema, up to the limit. It may be no number, since a reference may lead to a
    place that no meta-schema has checked; then 0."""
    length = schema.get(name)
    return int(max(0, min(length, limit))) if isinstance(length, int | float) else 0
