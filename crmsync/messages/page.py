"""The page of a lead, or of a record of another source: facts, timeline, a card for each CRM.

The page says everything as it is stored, sent and answered; `console/views/page.py` masks it for
people who may not see personal data.
"""

from collections.abc import Sequence
from typing import Any

from django.urls import reverse
from django.utils.translation import gettext as _, ngettext

from crmsync import presence
from crmsync.messages import explanations, policies, timeline
from crmsync.messages.lines import RECORD, lead_title
from crmsync.messages.policies import Policies
from crmsync.messages.states import CrmState, read_problems, read_states
from crmsync.messages.timeline import as_json
from crmsync.models import LandingPage, Lead, LeadIdempotency, Record
from crmsync.orders import Request
from crmsync.recovery.entries import EXCLUDED_STATES
from msgplatform.core.connections import RedisError
from msgplatform.core.data import ids as id_numbers, sql
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.page import (
    Attempt,
    Call,
    Page,
    PageLink,
    Recipient,
    Section,
    TimelineEntry,
    Value,
)
from msgplatform.core.intake.idempotency import key_of
from msgplatform.messages.filters import number
from msgplatform.models import Biz

_State = Record.State
# Cards of dead records come first, then those on their way.
_ORDER = (_State.DEAD, _State.HELD, _State.RETRY, _State.WAITING, _State.QUEUED, None)
_SHOWN_TRIES = 20  # tries of each record


def page(id: str, after: str = "") -> Page | None:
    """The page of a lead by its id, or of a record by `record-` and its id; None without one."""
    policies_by_id = policies.by_id()
    try:
        if not id.startswith(RECORD):
            lead = Lead.objects.filter(id=number(id)).first()
            return _lead_page(lead, policies_by_id) if lead else None
        record = Record.objects.filter(id=number(id.removeprefix(RECORD))).first()
    except InvalidInput:
        return None
    is_shown = record is not None and record.policy_id in policies_by_id
    return _record_page(record, policies_by_id) if record and is_shown else None


def _lead_page(lead: Lead, policies_by_id: Policies) -> Page:
    story = _Story(read_states([lead], policies_by_id)[lead.pk])
    form = LandingPage.objects.filter(appkey=lead.appkey).first()
    biz = Biz.objects.filter(pk=lead.biz_id).first()
    # An id holds the time at which it was made: the row itself has no such column.
    title = _("Form received") if form else _("Received")
    first_entry = TimelineEntry(id_numbers.datetime_of(lead.pk), title, "accepted", lead.appkey)
    entries = story.entries()
    # Only the last change is known: a lead has no earlier versions.
    if lead.version > 1:
        title = _("Deleted") if lead.is_delete else _("Changed")
        detail = _("version %d") % lead.version
        entries.append(TimelineEntry(lead.update_time, title, "accepted", detail))
    no_policy: list[Value] = []
    if not story.states:
        address = reverse("admin:crmsync_policy_changelist")
        no_policy = [
            _("No policy carries it to a CRM."),
            PageLink(_("Policies"), address, "crmsync.view_policy"),
        ]
    columns = {"appkey": lead.appkey, "uid": lead.uid, "name": lead.name, "phone": lead.phone}
    values: dict[str, Any] = {name: value for name, value in columns.items() if value}
    values |= {"extra": lead.extra} if lead.extra else {}
    call = Call.of_intake(
        _("Submit this once more with curl"), "/api/v1/leads", as_json(values, indent=None),
        _("With a key of the business system instead of YOUR_API_KEY; it becomes another lead."),
    )  # fmt: skip
    return Page(
        id=str(lead.pk),
        title=lead_title(lead),
        masked_title=lead_title(lead, is_masked=True),
        facts={
            _("Business system"): PageLink.to(biz) if biz else str(lead.biz_id),
            _("Landing page"): (
                PageLink.to(form, f"{form} ({lead.appkey})") if form else str(lead.appkey)
            ),
            "UID": lead.uid or "–",
            _("Version"): str(lead.version),
            _("Idempotency key"): key_of(LeadIdempotency, lead.pk) or "–",
        },
        body=as_json({"uid": lead.uid, "name": lead.name, "phone": lead.phone, **lead.extra}),
        timeline=[first_entry, *timeline.in_order(entries)],
        recipients=story.cards(),
        recipients_title=_("CRMs"),
        no_recipient_reasons=no_policy,
        resend_effect=story.resend_effect(),
        call=None if lead.is_delete else call,
    )


def _record_page(record: Record, policies_by_id: Policies) -> Page:
    policy = policies_by_id[record.policy_id]
    problem = read_problems([record]).get(record.pk, ())
    story = _Story([CrmState(policy, record, *problem)])
    # The platform does not have a lead of another source: show the request that was sent last.
    newest = story.tries.requests.get((record.operation_id, record.policy_id))
    return Page(
        id=f"{RECORD}{record.pk}",
        title=f"{policy.source} · {record.key}",
        facts={_("Source"): PageLink.to(policy.source), _("Key"): record.key},
        body=_fields(newest) if newest else "",
        timeline=timeline.in_order(story.entries()),
        recipients=story.cards(),
        recipients_title=_("CRMs"),
    )


def _fields(request: Request, indent: int | None = 2) -> str:
    return as_json({"erased": True} if request.erased else request.fields, indent)


class _Story:
    """The tries of some records and the reports on their CRMs, read once for timeline and cards."""

    def __init__(self, states: Sequence[CrmState]) -> None:
        self.states = states
        self.tries = timeline.read_tries(states)
        self._now = sql.now()
        self._live_crms: explanations.LiveCrms = {}
        if any(state.record and state.record.state in Record.OPEN for state in states):
            try:
                self._live_crms = presence.crms.read_by_id()
            except RedisError:
                self._live_crms = None

    def entries(self) -> list[TimelineEntry]:
        return list(timeline.entries(self.states, self.tries, self._now))

    def cards(self) -> list[Recipient]:
        def place(state: CrmState) -> int:
            value = state.record and _State(state.record.state)
            return _ORDER.index(value) if value in _ORDER else len(_ORDER)

        return [self._card(state) for state in sorted(self.states, key=place)]

    def resend_effect(self) -> str:
        """The question before all dead records are resent; '' for a single CRM."""
        dead = sum(
            bool(state.record and state.record.state == _State.DEAD) for state in self.states
        )
        if not dead or len(self.states) == 1:
            return ""
        return ngettext(
            "%d dead record gets all its tries again.",
            "%d dead records get all their tries again.",
            dead,
        ) % dead  # fmt: skip

    def _card(self, state: CrmState) -> Recipient:
        record, next_at = state.record, state.next_try_at
        items = [item for item in self.tries.items if record and item.record_id == record.pk]
        facts: dict[str, Value] = {_("Policy"): PageLink.to(state.policy)}
        if record:
            facts[_("Newest version")] = str(record.version) if record.version >= 0 else "–"
            facts[_("The CRM holds")] = (
                _("version %d") % record.sent_version if record.sent_version else _("nothing yet")
            )
            facts |= {_("Id in the CRM"): record.remote_id} if record.remote_id else {}
            facts |= {_("Failed tries"): str(record.attempt)} if record.attempt else {}
        notes = []
        if record and record.state in Record.OPEN and self._live_crms is None:
            notes.append(_("Redis is unavailable: whether the breaker of its CRM is open is not "
                           "known."))  # fmt: skip
        if items:
            notes.append(_("What was sent is shown as far as its operation is kept; of an answer "
                           "its outcome and message."))  # fmt: skip
        attempts = []
        for item in items[: -_SHOWN_TRIES - 1 : -1]:
            request = self.tries.requests.get((item.operation_id, state.policy.pk))
            is_deletion = request is not None and request.deleted
            parts = [_("to be deleted") if is_deletion else "", *timeline.answer_parts(item)]
            sections = []
            if request and not request.deleted:
                sections.append(Section(_("What was sent"), _fields(request, indent=None)))
            numbers = {"try": item.attempt, "version": item.version}
            attempts.append(
                Attempt(
                    at=item.at,
                    title=_("Try %(try)d of version %(version)d") % numbers,
                    answer=timeline.outcome_text(item),
                    tone="good" if timeline.is_success(item) else "bad",
                    seconds=item.milliseconds / 1000,
                    detail=" · ".join(part for part in parts if part),
                    sections=sections,
                )
            )
        return Recipient(
            id=str(record.pk) if record else f"policy-{state.policy.pk}",
            name=PageLink.to(state.policy.crm),
            state=state.label,
            tone=state.tone,
            since=record.updated_at if record else None,
            why=explanations.explain(state, self._live_crms, self._now),
            next_at=next_at if next_at and next_at > self._now else None,
            facts=facts,
            attempts=attempts,
            attempts_title=_("Tries, newest first"),
            notes=notes,
            resend_effect=_resend_effect(record),
        )


def _resend_effect(record: Record | None) -> str:
    """The effect of resending a record; '' when that cannot be done."""
    if record is None or record.state in EXCLUDED_STATES:
        return ""
    if record.state == _State.CONFIRMED:
        return _("The CRM holds it already: its newest version is sent once more.")
    if record.state == _State.DEAD:
        return _("Its newest version gets all its tries again.")
    return _("Its newest version is sent now, and gets all its tries again.")
