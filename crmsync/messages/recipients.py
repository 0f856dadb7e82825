"""The CRMs of a lead or record: a card for each, with its tries."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.utils.translation import gettext as _

from crmsync.messages import reasons
from crmsync.messages.crm_states import CrmState
from crmsync.messages.reasons import Lanes
from crmsync.messages.steps import as_json
from crmsync.messages.tries import OUTCOMES, Tries
from crmsync.models import Item, Record
from msgplatform.core import flows

_State = Record.State
_TONES: dict[int, flows.Tone] = {
    _State.CONFIRMED: "good", _State.DEAD: "bad", _State.RETRY: "warn",
}  # fmt: skip
# Dead ones first, then what is on its way.
_ORDER = (_State.DEAD, _State.RETRY, _State.WAITING, _State.QUEUED, None)
# Records that are sent anyway, or that a person gave up.
LEFT = (_State.QUEUED, _State.DISMISSED)
_SHOWN_TRIES = 20  # of each


def cards(
    states: Sequence[CrmState], tries: Tries, lanes: Lanes, now: datetime
) -> list[flows.Recipient]:
    def place(state: CrmState) -> int:
        found = state.record and _State(state.record.state)
        return _ORDER.index(found) if found in _ORDER else len(_ORDER)

    return [_card(state, tries, lanes, now) for state in sorted(states, key=place)]


def _card(state: CrmState, tries: Tries, lanes: Lanes, now: datetime) -> flows.Recipient:
    record = state.record
    items = [each for each in tries.items if record and each.record_id == record.pk]
    later = state.next_try_at if state.next_try_at and state.next_try_at > now else None
    notes = []
    if record and record.state in Record.OPEN and lanes is None:
        notes.append(_("Redis is unavailable: whether the breaker of its CRM is open is not "
                       "known."))  # fmt: skip
    if items:
        notes.append(_("What was sent is shown as far as its operation is kept; of an answer its "
                       "outcome and message."))  # fmt: skip
    return flows.Recipient(
        id=str(record.pk) if record else f"policy-{state.policy.pk}",
        name=flows.PageLink.to(state.policy.crm),
        state=state.label,
        tone=_TONES.get(record.state, "plain") if record else "plain",
        since=record.updated_at if record else None,
        why=reasons.why(state, lanes, now),
        next_at=later,
        facts=_facts(state),
        attempts=[_attempt(each, state, tries) for each in items[: -_SHOWN_TRIES - 1 : -1]],
        attempts_title=_("Tries, newest first"),
        notes=notes,
        resend_effect=_again(record),
    )


def _facts(state: CrmState) -> dict[str, flows.Value]:
    policy, record = state.policy, state.record
    facts: dict[str, flows.Value] = {_("Policy"): flows.PageLink.to(policy)}
    if record is not None:
        facts[_("Newest version")] = str(record.version) if record.version >= 0 else "–"
        facts[_("The CRM holds")] = (
            _("version %d") % record.sent_version if record.sent_version else _("nothing yet")
        )
        facts |= {_("Id in the CRM"): record.remote_id} if record.remote_id else {}
        facts |= {_("Failed tries"): str(record.attempt)} if record.attempt else {}
    return facts


def _attempt(item: Item, state: CrmState, tries: Tries) -> flows.Attempt:
    outcome = item.outcome.lower()
    parts = [
        item.remote_id and _("id in the CRM %s") % item.remote_id,
        item.field and _("field %s") % item.field,
        item.message,
    ]
    request = tries.requests.get((item.operation_id, state.policy.pk))
    sections = []
    if request is not None and request.deleted:
        parts.insert(0, _("to be deleted"))
    elif request is not None:
        sections.append(flows.Section(_("What was sent"), as_json(request.fields, indent=None)))
    title = _("Try %(try)d of version %(version)d") % {
        "try": item.attempt,
        "version": item.version,
    }
    return flows.Attempt(
        at=item.at,
        title=title,
        answer=str(OUTCOMES.get(outcome, outcome)),
        tone="good" if outcome == "ok" else "bad",
        seconds=item.milliseconds / 1000,
        detail=" · ".join(part for part in parts if part),
        sections=sections,
    )


def _again(record: Record | None) -> str:
    if record is None or record.state in LEFT:
        return ""
    if record.state == _State.CONFIRMED:
        return _("The CRM holds it already: its newest version is sent once more.")
    if record.state == _State.DEAD:
        return _("Its newest version gets all its tries again.")
    return _("Its newest version is sent now, and gets all its tries again.")
