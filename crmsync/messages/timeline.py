"""Everything about one lead, or one record of another source: from the form to each CRM.

Everything is said as it is stored, sent and answered; `console/masking.py` masks it for people who
may not see personal data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from crmsync import presence
from crmsync.messages import crm_states, policies, reasons, recipients, steps, tries
from crmsync.messages.crm_states import CrmState
from crmsync.messages.lines import RECORD, title
from crmsync.messages.steps import as_json
from crmsync.models import LandingPage, Lead, LeadIdempotency, Record
from msgplatform.api.filters import number
from msgplatform.core.connections import RedisError
from msgplatform.core.data import ids as id_numbers
from msgplatform.core.data import sql
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows import Call, Page, PageLink, Recipient, TimelineEntry, Value
from msgplatform.core.intake.idempotency import key_of
from msgplatform.models import Biz

_State = Record.State


def page(id: str, after: str = "") -> Page | None:
    """By a lead's id, or `record-` and a record's; None when there is none."""
    policies_by_id = policies.by_id()
    try:
        if id.startswith(RECORD):
            record = Record.objects.filter(id=number(id.removeprefix(RECORD))).first()
            return (
                _record_page(record, policies_by_id)
                if record and record.policy_id in policies_by_id
                else None
            )
        lead = Lead.objects.filter(id=number(id)).first()
    except InvalidInput:
        return None
    return _lead_page(lead, policies_by_id) if lead else None


def _lead_page(lead: Lead, policies_by_id: policies.Policies) -> Page:
    states = crm_states.of_leads([lead], policies_by_id)[lead.pk]
    form = LandingPage.objects.filter(appkey=lead.appkey).first()
    received = _("Form received") if form else _("Received")
    # An id holds the time at which it was made: the row itself has no such column.
    first = TimelineEntry(id_numbers.datetime_of(lead.pk), received, "accepted", lead.appkey)
    timeline = []
    # Only the last change is known: a lead keeps no earlier versions.
    if lead.version > 1:
        changed = _("Deleted") if lead.is_delete else _("Changed")
        detail = _("version %d") % lead.version
        timeline.append(TimelineEntry(lead.update_time, changed, "accepted", detail))
    fields = {"uid": lead.uid, "name": lead.name, "phone": lead.phone, **lead.extra}
    biz = Biz.objects.filter(pk=lead.biz_id).first()
    story = _Story(states)
    nobody: list[Value] = []
    if not states:
        policies_list = reverse("admin:crmsync_policy_changelist")
        nobody = [
            _("No policy carries it to a CRM."),
            PageLink(_("Policies"), policies_list, "crmsync.view_policy"),
        ]
    return Page(
        id=str(lead.pk),
        title=title(lead),
        masked_title=title(lead, is_masked=True),
        facts={
            _("Business system"): PageLink.to(biz) if biz else str(lead.biz_id),
            _("Landing page"): _form(lead, form),
            "UID": lead.uid or "–",
            _("Version"): str(lead.version),
            _("Idempotency key"): key_of(LeadIdempotency, lead.pk) or "–",
        },
        body=as_json(fields),
        timeline=[
            first,
            *steps.in_order([*timeline, *steps.entries(states, story.tries, story.now)]),
        ],
        recipients=story.cards(),
        recipients_title=_("CRMs"),
        no_recipient_reasons=nobody,
        resend_effect=story.again(),
        call=_call(lead) if not lead.is_delete else None,
    )


def _record_page(record: Record, policies_by_id: policies.Policies) -> Page:
    policy = policies_by_id[record.policy_id]
    said = crm_states.said([record]).get(record.pk, ())
    story = _Story([CrmState(policy, record, *said)])
    # The lead of another source is not here: what was sent last stands for it.
    newest = story.tries.requests.get((record.operation_id, record.policy_id))
    return Page(
        id=f"{RECORD}{record.pk}",
        title=f"{policy.source} · {record.key}",
        facts={_("Source"): PageLink.to(policy.source), _("Key"): record.key},
        body=as_json(newest.fields) if newest else "",
        timeline=steps.in_order(steps.entries(story.states, story.tries, story.now)),
        recipients=story.cards(),
        recipients_title=_("CRMs"),
    )


def _form(lead: Lead, form: LandingPage | None) -> Value:
    return PageLink.to(form, f"{form} ({lead.appkey})") if form else str(lead.appkey)


class _Story:
    """What happened to some records, which is read once."""

    def __init__(self, states: Sequence[CrmState]) -> None:
        self.states = states
        self.tries = tries.read(states)
        self.now = sql.now()
        self._lanes: reasons.Lanes = {}
        if any(state.record and state.record.state in Record.OPEN for state in states):
            try:
                self._lanes = presence.read_crms()
            except RedisError:
                self._lanes = None

    def cards(self) -> list[Recipient]:
        return recipients.cards(self.states, self.tries, self._lanes, self.now)

    def again(self) -> str:
        """The question before all dead ones are sent again; '' for a single CRM."""
        states = [state.record.state for state in self.states if state.record]
        dead = states.count(_State.DEAD)
        if not dead or len(self.states) == 1:
            return ""
        return ngettext(
            "%d dead record gets all its tries again.",
            "%d dead records get all their tries again.",
            dead,
        ) % dead  # fmt: skip


def _call(lead: Lead) -> Call:
    fields = {"appkey": lead.appkey, "uid": lead.uid, "name": lead.name, "phone": lead.phone}
    given: dict[str, Any] = {name: value for name, value in fields.items() if value}
    given |= {"extra": lead.extra} if lead.extra else {}
    return Call(
        _("Submit this once more with curl"),
        "/api/v1/leads",
        {"Authorization": "Bearer YOUR_API_KEY", "Content-Type": "application/json"},
        as_json(given, indent=None),
        note=_("With a key of the business system instead of YOUR_API_KEY; it becomes another "
               "lead."),
    )  # fmt: skip
