"""Everything about one lead, or one record of another source: from the form to each CRM.

A lead is shown as it is stored, to people who may see leads. What was sent and answered is masked,
as everywhere in the console; the page of an operation shows it in clear to people who may see it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from django.utils import formats, timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from crmsync import orders, personal
from crmsync.models import Item, LandingPage, Lead, Operation, Record
from crmsync.search import crm_states, policies
from crmsync.search.crm_states import CrmState
from crmsync.search.hits import RECORD, title
from msgplatform.api.filters import number
from msgplatform.core.data import ids as id_numbers
from msgplatform.core.data import sql
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows import Page, TimelineEntry
from msgplatform.models import Biz

# The latest ones, of all CRMs together.
SHOWN_OPERATIONS = 20
SHOWN_TRIES = 100
_State = Record.State
# The colours of entries, by state.
_DOTS = {
    "confirmed": "delivered", "dead": "failed", "retry": "waiting", "unread": "waiting",
}  # fmt: skip
_OUTCOMES = {
    "ok": gettext_lazy("the CRM holds it"),
    "retry": gettext_lazy("not stored"),
    "throttled": gettext_lazy("not stored, the CRM wants fewer calls"),
    "invalid": gettext_lazy("refused for good"),
    "conflict": gettext_lazy("the CRM holds this person as another record"),
    "auth": gettext_lazy("the CRM refused the credentials"),
    "unknown": gettext_lazy("nobody knows whether it is stored"),
    "refused": gettext_lazy("the batch was refused as a whole"),
}


def page(id: str) -> Page | None:
    """By a lead's id, or `record-` and a record's; None when there is none."""
    known = policies.by_id()
    try:
        if id.startswith(RECORD):
            record = Record.objects.filter(id=number(id.removeprefix(RECORD))).first()
            return _record_page(record, known) if record and record.policy_id in known else None
        lead = Lead.objects.filter(id=number(id)).first()
    except InvalidInput:
        return None
    return _lead_page(lead, known) if lead else None


def _lead_page(lead: Lead, known: policies.Policies) -> Page:
    states = crm_states.of_leads([lead], known)[lead.pk]
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
    return Page(
        id=str(lead.pk),
        title=title(lead),
        facts={
            _("Business system"): str(Biz.objects.filter(pk=lead.biz_id).first() or lead.biz_id),
            _("Landing page"): f"{form} ({lead.appkey})" if form else lead.appkey,
            "UID": lead.uid or "–",
            _("Version"): str(lead.version),
            **_facts(states),
        },
        body=_json(fields),
        timeline=[first, *_in_order([*timeline, *_entries(states)])],
    )


def _record_page(record: Record, known: policies.Policies) -> Page:
    policy = known[record.policy_id]
    message = crm_states.messages([record]).get(record.pk, "")
    states = [CrmState(policy, record, message)]
    facts = {_("Source"): str(policy.source), _("Key"): record.key, **_facts(states)}
    # The lead of another source is not here: what was sent last stands for it.
    newest = _requests(states, [record.operation_id]).get((record.operation_id, record.policy_id))
    return Page(
        id=f"{RECORD}{record.pk}",
        title=f"{policy.source} · {record.key}",
        facts=facts,
        body=_json(personal.masked(newest.fields)) if newest else "",
        timeline=_in_order(_entries(states)),
    )


def _facts(states: Iterable[CrmState]) -> dict[str, str]:
    """CRM → its state, the version that it holds, and its id there."""
    found = {}
    for state in states:
        parts = [state.label]
        if (record := state.record) is not None:
            parts += [_("holds version %d") % record.sent_version] if record.sent_version else []
            parts += [record.remote_id] if record.remote_id else []
        found[str(state.policy)] = " · ".join(parts)
    return found


def _entries(states: Sequence[CrmState]) -> Iterator[TimelineEntry]:
    """What was read, each try, and the state of each record now."""
    by_record = {state.record.pk: state for state in states if state.record}
    rows = Item.objects.filter(record_id__in=by_record).order_by("-id")
    # One more than is shown tells whether there are others.
    tries = list(rows[: SHOWN_TRIES + 1])[::-1]
    if len(tries) > SHOWN_TRIES:
        more = _("There were more tries; the last %d are shown.") % SHOWN_TRIES
        yield TimelineEntry(tries.pop(0).at, more, "linked")
    yield from _operations(states, {each.operation_id for each in tries})
    for each in tries:
        outcome = each.outcome.lower()
        parts = [
            _("version %d") % each.version,
            each.remote_id and _("id in the CRM %s") % each.remote_id,
            each.field and _("field %s") % each.field,
            personal.in_sentence(each.message),
            _("operation %d") % each.operation_id,
            f"{each.milliseconds} ms",
        ]
        yield TimelineEntry(
            each.at,
            f"{by_record[each.record_id].policy.crm}: {_OUTCOMES.get(outcome, outcome)}",
            "delivered" if outcome == "ok" else "attempt",
            " · ".join(part for part in parts if part),
        )
    now = sql.now()
    for state in states:
        yield _ending(state, now)


def _operations(states: Sequence[CrmState], tried: set[int]) -> Iterator[TimelineEntry]:
    """When each version was read, with the request that the mapping made of it."""
    records = [state.record for state in states if state.record]
    named = {pk for each in records for pk in (each.operation_id, each.sending_operation) if pk}
    wanted = sorted(tried | named, reverse=True)
    # Only so many are decoded: the data of an operation holds hundreds of requests.
    requests = _requests(states, wanted[:SHOWN_OPERATIONS])
    crms = {state.policy.pk: str(state.policy.crm) for state in states}
    columns = ("id", "policy_id", "run_id", "start_at")
    rows = Operation.objects.filter(id__in=wanted).order_by("id").values_list(*columns)
    for pk, policy, run, start in rows:
        request = requests.get((pk, policy))
        where = _("operation %d") % pk
        if run:
            where = _("operation %(operation)d of run %(run)d") % {"operation": pk, "run": run}
        fields = personal.masked(request.fields) if request and not request.deleted else None
        content = _json(fields, indent=None) if fields else ""
        what = _("%s: read") % crms[policy]
        if request:
            asked = _("%s: read, to be deleted") if request.deleted else _("%s: read, to be sent")
            what = asked % crms[policy]
            where = _("version %d") % request.version + " · " + where
        at = datetime.fromtimestamp(start / 1000, UTC)
        detail = " · ".join(part for part in (where, content) if part)
        yield TimelineEntry(at, what, "accepted", detail)


def _requests(
    states: Iterable[CrmState], operations: Sequence[int]
) -> dict[tuple[int, int], orders.Request]:
    """(operation, policy) → the request of that policy's record."""
    keys = {s.policy.pk: s.policy.key_prefix + s.record.key for s in states if s.record}
    rows = Operation.objects.filter(id__in=operations, policy_id__in=keys)
    found = {}
    for pk, policy, data in rows.values_list("id", "policy_id", "data"):
        for request in orders.load(bytes(data)):
            if request.key == keys[policy]:
                found[pk, policy] = request
    return found


def _ending(state: CrmState, now: datetime) -> TimelineEntry:
    """The state of a record now; without a time while something is still to happen."""
    record, at, detail = state.record, None, ""
    message = personal.in_sentence(state.message)
    due = record.next_at if record else None
    if record is None:
        detail = _wait(state) or _("a poller reads it with the next look for changes")
    # A record that waits shows why nothing happens, or else when it is tried next.
    elif record.state in (_State.WAITING, _State.RETRY):
        later = due and due > now
        when = _("next try at %s") % _local(due) if later and due else _("due now")
        detail = " · ".join(part for part in (_wait(state) or when, message) if part)
    elif record.state == _State.QUEUED:
        detail = _wait(state)
        if due:
            detail = detail or _("queued again at %s if no answer comes") % _local(due)
    else:
        at = record.updated_at
        detail = message if record.state == _State.DEAD else ""
        if record.state == _State.CONFIRMED:
            detail = _("version %d") % record.sent_version
    return TimelineEntry(at, state.shown, _DOTS.get(state.name, state.name), detail)


def _wait(state: CrmState) -> str:
    """Why nothing happens until a person acts; '' when it goes on by itself."""
    policy = state.policy
    if not policy.crm.enabled:
        return _("the CRM is switched off")
    if policy.crm.paused_at:
        return _("the CRM is paused: %s") % policy.crm.paused_because
    return "" if policy.enabled else _("the policy is switched off")


def _in_order(entries: Iterable[TimelineEntry]) -> list[TimelineEntry]:
    """Sorted by time; entries without a time come last, since they are still to happen."""
    latest = datetime.max.replace(tzinfo=UTC)
    return sorted(entries, key=lambda entry: entry.at or latest)


def _local(moment: datetime) -> str:
    return formats.localize(timezone.localtime(moment))


def _json(value: Any, indent: int | None = 2) -> str:
    """JSON for people, with the letters of every script as they are."""
    return json.dumps(value, ensure_ascii=False, indent=indent)
