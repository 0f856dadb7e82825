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
from django.utils.translation import gettext, gettext_lazy, gettext_noop, ngettext
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from msgplatform import person_limits
from msgplatform.admin import sees_personal
from msgplatform.console.views.page import can_start_jobs, flow_of, page, visible
from msgplatform.core import flows, lazy_text, personal
from msgplatform.core.errors import UNAVAILABLE
from msgplatform.core.flows.text import Text
from msgplatform.models import Acknowledgement
from msgplatform.models.failures import MAX_NOTE
from msgplatform.monitor import failure_store
from msgplatform.person_limits import answers_limited_people

ACKNOWLEDGED_SHOWN = 10
ACKNOWLEDGE_PERMISSION = "msgplatform.change_alert"


# Names of answers by which failures are grouped. They are stored and documented in English.
_PREFIXES = (gettext_noop("poison: "), gettext_noop("result "))
_NAMES = frozenset({
    # Notify: the HTTP engine's classes of errors, and deliveries without an attempt.
    gettext_noop("dns"), gettext_noop("connect"), gettext_noop("tls"), gettext_noop("timeout"),
    gettext_noop("reset"), gettext_noop("too_large"), gettext_noop("address_forbidden"),
    gettext_noop("bad_url"), gettext_noop("other"), gettext_noop("not tried, breaker open"),
    # SMS: endings.
    gettext_noop("failed"), gettext_noop("expired"), gettext_noop("unknown"),
    # CRM sync: classes of errors.
    gettext_noop("retry"), gettext_noop("throttled"), gettext_noop("invalid"),
    gettext_noop("conflict"), gettext_noop("auth"), gettext_noop("refused"), gettext_noop("fault"),
    gettext_noop("queue"),
})  # fmt: skip


class AcknowledgeForm(forms.Form):
    """The state of a group that a person acknowledges, with their note."""

    id = forms.IntegerField(min_value=1, max_value=2**63 - 1)
    lost = forms.IntegerField(min_value=0, max_value=2**63 - 1)
    until = forms.DateTimeField()
    note = forms.CharField(
        max_length=MAX_NOTE, error_messages={"required": gettext_lazy("Say why, in the note.")}
    )


@dataclass(frozen=True)
class ResendForm:
    """The form that sends several groups of a place again: its address, and how many messages."""

    url: str
    count: int


@dataclass(frozen=True)
class FailurePlace:
    """The failures of one place, with the address of the form that sends each group again.

    `resend_forms` are the forms for all groups together; `button` acts on the place, at an address.
    """

    failures: list[tuple[flows.Failure, str]]
    resend_forms: list[ResendForm]
    button: tuple[flows.Button, str] | None

    @property
    def first(self) -> flows.Failure:
        return self.failures[0][0]

    @property
    def has_heading(self) -> bool:
        """True if its groups have something in common above them."""
        return bool(self.resend_forms) or (self.button is not None and len(self.failures) > 1)


@dataclass(frozen=True)
class FlowFailures:
    """A flow's failures by place; `problem` is a sentence when they cannot be read."""

    flow: flows.Flow
    places: list[FailurePlace]
    problem: str = ""

    @property
    def number(self) -> int:
        return sum(len(place.failures) for place in self.places)

    @property
    def is_cut(self) -> bool:
        return self.number >= flows.MAX_FAILURES

    @property
    def kind(self) -> Text:
        """The kind of its places, such as subscriptions."""
        activity = self.flow.health.activity
        return activity.dimensions[0].title if activity and activity.dimensions else ""


@answers_limited_people
@staff_member_required
@require_GET
def failures(request: HttpRequest) -> HttpResponse:
    """The groups that nobody has sent again or acknowledged, and the latest acknowledgements."""
    user: Any = request.user
    visible_flows = visible(request)
    systems = person_limits.systems_of(request)
    listings = [
        _flow_failures(flow, user, sees_personal(request), systems) for flow in visible_flows
    ]
    return page(
        request,
        "failures.html",
        _("Failures"),
        listings=[one for one in listings if one.places or one.problem],
        may_acknowledge=user.has_perm(ACKNOWLEDGE_PERMISSION),
        # Nothing of an acknowledgement says whose messages they were.
        acknowledged=[]
        if systems is not None
        else _latest_acknowledgements(visible_flows, sees_personal(request)),
        max_note=MAX_NOTE,
        is_limited=systems is not None,
        unlisted=[]
        if systems is None
        else [flow for flow in visible_flows if not flow.health.has_failures_of_systems],
    )


def _latest_acknowledgements(
    visible_flows: Sequence[flows.Flow], clear: bool
) -> list[Acknowledgement]:
    """The latest acknowledgements, with notes and answers as this person may read them."""
    rows = list(
        failure_store.latest_acknowledgements(
            [flow.name for flow in visible_flows], ACKNOWLEDGED_SHOWN
        )
    )
    for row in rows:
        row.answer = answer_title(row.answer)
        row.note = row.note if clear else personal.in_sentence(row.note)
    return rows


def _flow_failures(
    flow: flows.Flow, user: Any, clear: bool, systems: person_limits.Systems | None
) -> FlowFailures:
    try:
        groups = failure_store.failures_of(flow, systems)
    except UNAVAILABLE as error:
        return FlowFailures(flow, [], str(error)[:200])
    groups = [replace(one, where=lazy_text.translated(one.where)) for one in groups]
    if not clear:  # an answer is a content, and may say whose it is
        groups = [replace(one, said=personal.text(one.said)) for one in groups]
    groups = [replace(one, answer=answer_title(str(one.answer))) for one in groups]
    places: dict[int, list[flows.Failure]] = defaultdict(list)
    for failure in sorted(groups, key=lambda failure: failure.last_at, reverse=True):
        places[failure.subject].append(failure)
    return FlowFailures(flow, [_place(flow, groups, user) for groups in places.values()])


def _place(flow: flows.Flow, groups: Sequence[flows.Failure], user: Any) -> FailurePlace:
    button = groups[0].button
    if button is None or not user.has_perm(button.permission):
        acting = None
    else:
        acting = button, reverse(button.view, args=[groups[0].subject])
    if not can_start_jobs(user, flow):
        return FailurePlace([(one, "") for one in groups], [], acting)
    failures = [(one, _bulk_url(flow, one.action, one.filter)) for one in groups]
    return FailurePlace(failures, _resend_forms(flow, groups), acting)


def _resend_forms(flow: flows.Flow, groups: Sequence[flows.Failure]) -> list[ResendForm]:
    """One form for all groups of a place that the same filter finds."""
    together: dict[str, list[flows.Failure]] = defaultdict(list)
    for one in groups:
        if one.place_filter and (url := _bulk_url(flow, one.action, one.place_filter)):
            together[url].append(one)
    return [
        ResendForm(url, sum(one.count for one in failures))
        for url, failures in together.items()
        if failures[1:]
    ]


def _bulk_url(flow: flows.Flow, action: str, filter: Mapping[str, str]) -> str:
    """The form of bulk jobs with this filter and its count; '' when the flow has no such action."""
    if action not in flow.actions:
        return ""
    query = urlencode({"action": action, **filter, "count": "1"})
    return f"{reverse('console:bulk-flow', args=[flow.name])}?{query}"


@answers_limited_people
@staff_member_required
@permission_required(ACKNOWLEDGE_PERMISSION, raise_exception=True)
@require_POST
def acknowledge(request: HttpRequest, flow_name: str) -> HttpResponse:
    """Acknowledge a group with a note; failures since it was shown stay listed."""
    flow = flow_of(request, flow_name)
    form = AcknowledgeForm(request.POST)
    if not form.is_valid():
        sentence = " ".join(str(error) for errors in form.errors.values() for error in errors)
        messages.error(request, sentence)
        return redirect("console:failures")
    values = form.cleaned_data
    snapshot = failure_store.GroupSnapshot(values["id"], values["lost"], values["until"])
    systems, count = person_limits.systems_of(request), 0
    if systems is None or any(
        one.id == values["id"] for one in failure_store.failures_of(flow, systems)
    ):
        count = failure_store.acknowledge_group(
            flow, snapshot, values["note"], request.user.get_username()
        )
    if not count:
        messages.warning(request, _("There is nothing left to acknowledge."))
        return redirect("console:failures")
    text = ngettext("%d message acknowledged.", "%d messages acknowledged.", count)
    messages.success(request, text % count)
    return redirect("console:failures")


def answer_title(answer: str) -> str:
    """The name of an answer in the reader's language; other names, such as HTTP 503, stay as they
    are."""
    for prefix in _PREFIXES:
        if answer.startswith(prefix):
            return gettext(prefix) + answer_title(answer.removeprefix(prefix))
    return gettext(answer) if answer in _NAMES else answer
