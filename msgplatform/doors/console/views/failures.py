"""The page Failures: by place and answer; sent again from here, or acknowledged."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import msgspec
from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _, gettext_lazy, ngettext

from msgplatform import person_limits
from msgplatform.core import lazy_text, personal
from msgplatform.core.errors import UNAVAILABLE
from msgplatform.core.flows.contract import Flow
from msgplatform.core.flows.health import MAX_FAILURES, Button, Failure
from msgplatform.core.flows.text import Text
from msgplatform.doors.admin import sees_personal
from msgplatform.doors.console.views import page as pages
from msgplatform.models import Acknowledgement
from msgplatform.models.failures import MAX_NOTE
from msgplatform.monitor import failure_groups
from msgplatform.monitor.failure_groups import answer_title

ACKNOWLEDGED_SHOWN = 10
ACKNOWLEDGE_PERMISSION = "msgplatform.change_alert"


class AcknowledgeForm(forms.Form):
    """A person's acknowledgement of a group in the state that they saw, with a note."""

    id = forms.IntegerField(min_value=1, max_value=2**63 - 1)
    lost = forms.IntegerField(min_value=0, max_value=2**63 - 1)
    until = forms.DateTimeField()
    note = forms.CharField(
        max_length=MAX_NOTE, error_messages={"required": gettext_lazy("Say why, in the note.")}
    )


class FailurePlace(msgspec.Struct, frozen=True):
    """The failures of one place, with the address of the form that sends each group again.

    `resend_forms` resend several groups together: (address of the form, number of messages).
    `button` acts on the place, at an address.
    """

    failures: list[tuple[Failure, str]]
    resend_forms: list[tuple[str, int]]
    button: tuple[Button, str] | None

    @property
    def first(self) -> Failure:
        return self.failures[0][0]

    @property
    def has_heading(self) -> bool:
        """True if the place's groups have a common heading with a form or a button."""
        return bool(self.resend_forms) or (self.button is not None and len(self.failures) > 1)


class FlowFailures(msgspec.Struct, frozen=True):
    """A flow's failures by place; `problem` is a sentence when they cannot be read."""

    flow: Flow
    places: list[FailurePlace]
    problem: str = ""

    @property
    def number(self) -> int:
        return sum(len(place.failures) for place in self.places)

    @property
    def is_cut(self) -> bool:
        return self.number >= MAX_FAILURES

    @property
    def kind(self) -> Text:
        """The kind of its places, such as subscriptions."""
        activity = self.flow.health.activity
        return activity.dimensions[0].title if activity and activity.dimensions else ""


@pages.staff_view("GET", answers_limited_people=True)
def failures(request: HttpRequest) -> HttpResponse:
    """The groups that nobody has resent or acknowledged, and the latest acknowledgements."""
    visible_flows, clear = pages.visible(request), sees_personal(request)
    systems = person_limits.systems_of(request)
    listings = [_flow_failures(flow, request.user, clear, systems) for flow in visible_flows]
    acknowledgements: list[Acknowledgement] = []
    if systems is None:  # acknowledgements do not say whose messages they concern
        names = [flow.name for flow in visible_flows]
        rows = Acknowledgement.objects.filter(flow__in=names).order_by("-id")
        acknowledgements += rows[:ACKNOWLEDGED_SHOWN]
    for row in acknowledgements:
        row.answer = answer_title(row.answer)
        row.note = row.note if clear else personal.mask_sentence(row.note)
    return pages.page(
        request,
        "failures.html",
        _("Failures"),
        listings=[listing for listing in listings if listing.places or listing.problem],
        may_acknowledge=request.user.has_perm(ACKNOWLEDGE_PERMISSION),
        acknowledged=acknowledgements,
        max_note=MAX_NOTE,
        is_limited=systems is not None,
        unlisted=[
            flow
            for flow in visible_flows
            if systems is not None and not flow.health.has_failures_of_systems
        ],
    )


def _flow_failures(
    flow: Flow, user: Any, clear: bool, systems: person_limits.Systems | None
) -> FlowFailures:
    """The flow's failures by place, as this person may read them and act on them."""
    try:
        groups = failure_groups.failures_of(flow, systems)
    except UNAVAILABLE as error:
        return FlowFailures(flow, [], str(error)[:200])
    groups_by_place: dict[int, list[Failure]] = defaultdict(list)
    for group in sorted(groups, key=lambda group: group.last_at, reverse=True):
        # An answer is content, and may contain personal data.
        content = group.said if clear else personal.mask_content(group.said)
        where, answer = lazy_text.translate_text(group.where), answer_title(str(group.answer))
        group = msgspec.structs.replace(group, where=where, said=content, answer=answer)
        groups_by_place[group.subject].append(group)
    places = []
    starts_jobs = pages.can_start_jobs(user, flow)
    for subject, place_groups in groups_by_place.items():
        button = place_groups[0].button
        linked_button = None
        if button is not None and user.has_perm(button.permission):
            linked_button = button, reverse(button.view, args=[subject])
        # One form for all groups of the place that match the same filter.
        counts_by_url: dict[str, list[int]] = defaultdict(list)
        for group in place_groups if starts_jobs else ():
            if group.place_filter and (url := _bulk_url(flow, group.action, group.place_filter)):
                counts_by_url[url].append(group.count)
        resend_forms = [(url, sum(counts)) for url, counts in counts_by_url.items() if counts[1:]]
        linked_groups = [
            (group, _bulk_url(flow, group.action, group.filter) if starts_jobs else "")
            for group in place_groups
        ]
        places.append(FailurePlace(linked_groups, resend_forms, linked_button))
    return FlowFailures(flow, places)


def _bulk_url(flow: Flow, action: str, filter: Mapping[str, str]) -> str:
    """The form of bulk jobs with this filter and its count; '' when the flow has no such action."""
    if action not in flow.actions:
        return ""
    return pages.bulk_address(flow.name, action, filter, count=1)


@pages.staff_view("POST", answers_limited_people=True)
@permission_required(ACKNOWLEDGE_PERMISSION, raise_exception=True)
def acknowledge(request: HttpRequest, flow_name: str) -> HttpResponse:
    """Acknowledge a group with a note; failures since it was shown stay listed."""
    flow = pages.flow_of(request, flow_name)
    form = AcknowledgeForm(request.POST)
    if not form.is_valid():
        sentence = " ".join(str(error) for errors in form.errors.values() for error in errors)
        messages.error(request, sentence)
        return redirect("console:failures")
    values = form.cleaned_data
    snapshot = failure_groups.GroupSnapshot(values["id"], values["lost"], values["until"])
    systems, count = person_limits.systems_of(request), 0
    if systems is None or any(
        group.id == values["id"] for group in failure_groups.failures_of(flow, systems)
    ):
        count = failure_groups.acknowledge_group(
            flow, snapshot, values["note"], request.user.get_username()
        )
    if count:
        text = ngettext("%d message acknowledged.", "%d messages acknowledged.", count)
        messages.success(request, text % count)
    else:
        messages.warning(request, _("There is nothing left to acknowledge."))
    return redirect("console:failures")
