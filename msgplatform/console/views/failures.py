"""The page Failures: by place and answer; sent again from here, or acknowledged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.contrib.admin.views.decorators import staff_member_required
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.http import require_GET, require_POST

from msgplatform.admin import sees_personal
from msgplatform.console import answers
from msgplatform.console.views.page import flow_of, page, visible
from msgplatform.core import flows, lazy_text, personal
from msgplatform.core.errors import UNAVAILABLE
from msgplatform.core.flows.text import Text
from msgplatform.models import Acknowledgement, AuditLog, FailureGroup
from msgplatform.models.failures import MAX_NOTE
from msgplatform.monitor import failure_store

ACKNOWLEDGED_SHOWN = 10
MAY_ACKNOWLEDGE = "msgplatform.change_alert"


class AcknowledgeForm(forms.Form):
    """What a person has seen of a group, and why they leave it at that."""

    id = forms.IntegerField(min_value=1, max_value=2**63 - 1)
    lost = forms.IntegerField(min_value=0, max_value=2**63 - 1)
    until = forms.DateTimeField()
    note = forms.CharField(
        max_length=MAX_NOTE, error_messages={"required": gettext_lazy("Say why, in the note.")}
    )


@dataclass(frozen=True)
class Again:
    """The form that sends several groups of a place again: its address, and how many messages."""

    url: str
    count: int


@dataclass(frozen=True)
class Place:
    """The failures of one place, with the address of the form that sends each group again.

    `agains` are the forms for all groups together; `button` acts on the place, at an address.
    """

    failures: list[tuple[flows.Failure, str]]
    agains: list[Again]
    button: tuple[flows.Button, str] | None

    @property
    def first(self) -> flows.Failure:
        return self.failures[0][0]

    @property
    def has_heading(self) -> bool:
        """True if its groups have something in common above them."""
        return bool(self.agains) or (self.button is not None and len(self.failures) > 1)


@dataclass(frozen=True)
class Listed:
    """A flow's failures by place; `problem` is a sentence when they cannot be read."""

    flow: flows.Flow
    places: list[Place]
    problem: str = ""

    @property
    def number(self) -> int:
        return sum(len(place.failures) for place in self.places)

    @property
    def is_cut(self) -> bool:
        return self.number >= flows.MAX_FAILURES

    @property
    def kind(self) -> Text:
        """What its places are, such as subscriptions."""
        activity = self.flow.health.activity
        return activity.dimensions[0].title if activity and activity.dimensions else ""


@staff_member_required
@require_GET
def failures(request: HttpRequest) -> HttpResponse:
    """What nobody has sent again or acknowledged, and what was acknowledged lately."""
    user: Any = request.user
    able = visible(request)
    listed = [_listed(flow, user, sees_personal(request)) for flow in able]
    return page(
        request,
        "failures.html",
        _("Failures"),
        listed=[one for one in listed if one.places or one.problem],
        may_acknowledge=user.has_perm(MAY_ACKNOWLEDGE),
        acknowledged=_acknowledged(able, sees_personal(request)),
        max_note=MAX_NOTE,
    )


def _acknowledged(able: Sequence[flows.Flow], clear: bool) -> list[Acknowledgement]:
    """The latest, with what people wrote as this person may read it."""
    rows = list(failure_store.acknowledged([flow.name for flow in able], ACKNOWLEDGED_SHOWN))
    for row in rows:
        row.answer = answers.shown(row.answer)
        row.note = row.note if clear else personal.in_sentence(row.note)
    return rows


def _listed(flow: flows.Flow, user: Any, clear: bool) -> Listed:
    try:
        found = flow.health.failures()
    except UNAVAILABLE as error:
        return Listed(flow, [], str(error)[:200])
    found = [replace(one, where=lazy_text.translated(one.where)) for one in found]
    if not clear:  # an answer is a content, and may say whose it is
        found = [replace(one, said=personal.text(one.said)) for one in found]
    found = [replace(one, answer=answers.shown(str(one.answer))) for one in found]
    places: dict[int, list[flows.Failure]] = defaultdict(list)
    for failure in sorted(found, key=lambda failure: failure.last_at, reverse=True):
        places[failure.subject].append(failure)
    return Listed(flow, [_place(flow, groups, user) for groups in places.values()])


def _place(flow: flows.Flow, groups: Sequence[flows.Failure], user: Any) -> Place:
    button = groups[0].button
    if button is None or not user.has_perm(button.permission):
        acting = None
    else:
        acting = button, reverse(button.view, args=[groups[0].subject])
    if not (user.has_perm("msgplatform.add_bulkjob") and flow.is_bulk_allowed(user)):
        return Place([(one, "") for one in groups], [], acting)
    failures = [(one, _form(flow, one.action, one.filter)) for one in groups]
    return Place(failures, _agains(flow, groups), acting)


def _agains(flow: flows.Flow, groups: Sequence[flows.Failure]) -> list[Again]:
    """One form for all groups of a place that the same filter finds."""
    together: dict[str, list[flows.Failure]] = defaultdict(list)
    for one in groups:
        if one.place_filter and (url := _form(flow, one.action, one.place_filter)):
            together[url].append(one)
    return [
        Again(url, sum(one.count for one in same)) for url, same in together.items() if same[1:]
    ]


def _form(flow: flows.Flow, action: str, filter: Mapping[str, str]) -> str:
    """The form of bulk jobs with this filter and its count; '' when the flow has no such action."""
    if action not in flow.actions:
        return ""
    query = urlencode({"action": action, **filter, "count": "1"})
    return f"{reverse('console:bulk-flow', args=[flow.name])}?{query}"


@staff_member_required
@permission_required(MAY_ACKNOWLEDGE, raise_exception=True)
@require_POST
def acknowledge(request: HttpRequest, flow_name: str) -> HttpResponse:
    """Acknowledge a group with a note; failures since it was shown stay listed."""
    flow = flow_of(request, flow_name)
    form = AcknowledgeForm(request.POST)
    if not form.is_valid():
        sentence = " ".join(str(error) for errors in form.errors.values() for error in errors)
        messages.error(request, sentence)
        return redirect("console:failures")
    given = form.cleaned_data
    shown = {failure.id: failure for failure in flow.health.failures()}
    group = FailureGroup.objects.filter(pk=given["id"], flow=flow.name).first()
    if group is None:
        messages.warning(request, _("There is nothing left to acknowledge."))
        return redirect("console:failures")
    place = str(shown[group.pk].where) if group.pk in shown else str(group.subject)
    actor = request.user.get_username()
    seen = failure_store.Seen(group.pk, given["lost"], given["until"])
    done = failure_store.acknowledge(seen, place, group.answer, given["note"], actor)
    if not done:
        messages.warning(request, _("There is nothing left to acknowledge."))
        return redirect("console:failures")
    AuditLog.objects.create(
        actor=actor,
        action="failures_acknowledged",
        target=f"{flow.name}: {place}, {group.answer}"[:200],
        detail={"count": done, "note": given["note"], "until": given["until"].isoformat()},
    )
    text = ngettext("%d message acknowledged.", "%d messages acknowledged.", done)
    messages.success(request, text % done)
    return redirect("console:failures")
