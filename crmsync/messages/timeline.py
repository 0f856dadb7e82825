"""The history of records in the order of time: read, tried, recovered, and their state now."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from django.utils.translation import gettext as _

from crmsync.messages import explanations, tries
from crmsync.messages.states import CrmState
from crmsync.models import Operation, Record, RecoveryEntry
from msgplatform.core.flows.page import PageLink, TimelineEntry

_SHOWN_ENTRIES = 20  # entries of the recovery log
_READ_ENTRIES = 1000
_State = Record.State
# The colours of entries, by state.
_DOTS = {
    "confirmed": "delivered", "dead": "failed", "retry": "waiting", "unread": "waiting",
}  # fmt: skip


def entries(
    states: Sequence[CrmState], read: tries.Tries, now: datetime
) -> Iterator[TimelineEntry]:
    """Each version that was read, each try, each action of a person, and the state of each record
    at `now`."""
    by_record = {state.record.pk: state for state in states if state.record}
    if read.earlier:
        more = _("There were more tries; the last %d are shown.") % len(read.items)
        yield TimelineEntry(read.earlier.at, more, "linked")
    crms = {state.policy.pk: str(state.policy.crm) for state in states}
    columns = ("id", "policy_id", "run_id", "start_at")
    rows = Operation.objects.filter(id__in=read.operations).order_by("id").values_list(*columns)
    for pk, policy, run, start in rows:
        request = read.requests.get((pk, policy))
        where = _("operation %d") % pk
        if run:
            where = _("operation %(operation)d of run %(run)d") % {"operation": pk, "run": run}
        fields = request.fields if request and not request.deleted else None
        content = as_json(fields, indent=None) if fields else ""
        title = _("%s: read") % crms[policy]
        if request:
            text = _("%s: read, to be deleted") if request.deleted else _("%s: read, to be sent")
            title = text % crms[policy]
            if request.erased:
                content = _("its values were erased")
            where = _("version %d") % request.version + " · " + where
        at = datetime.fromtimestamp(start / 1000, UTC)
        yield TimelineEntry(at, title, "accepted", where, content)
    for item in read.items:
        parts = [
            _("version %d") % item.version,
            *tries.answer_parts(item),
            _("operation %d") % item.operation_id,
            f"{item.milliseconds} ms",
        ]
        yield TimelineEntry(
            item.at,
            f"{by_record[item.record_id].policy.crm}: {tries.outcome_text(item)}",
            "delivered" if tries.is_success(item) else "attempt",
            " · ".join(parts),
        )
    yield from _recoveries(by_record)
    for state in states:
        record, ended_at, detail = state.record, None, ""
        if record is None:
            detail = explanations.unread(state)
        # A waiting record shows what blocks it, or else when it is tried next.
        elif record.state in (_State.WAITING, _State.RETRY):
            next_try = _("due now")
            if record.next_at and record.next_at > now:
                next_try = _("next try at %s") % explanations.local(record.next_at)
            detail = explanations.joined(explanations.blocker(state) or next_try, state.message)
        elif record.state == _State.HELD:
            detail = explanations.blocker(state) or explanations.removal(state)
        elif record.state == _State.QUEUED:
            detail = explanations.blocker(state) or explanations.lease_end(record)
        else:
            ended_at = record.updated_at
            detail = state.message if record.state == _State.DEAD else ""
            if record.state == _State.CONFIRMED:
                detail = _("version %d") % record.sent_version
        yield TimelineEntry(ended_at, state.title, _DOTS.get(state.name, state.name), detail)


def in_order(entries: Iterable[TimelineEntry]) -> list[TimelineEntry]:
    """Sorted by time. Entries without a time come last, because they are still to happen."""
    latest = datetime.max.replace(tzinfo=UTC)
    return sorted(entries, key=lambda entry: entry.at or latest)


def as_json(value: Any, indent: int | None = 2) -> str:
    """JSON for people, with the letters of every script as they are."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _recoveries(by_record: Mapping[int, CrmState]) -> Iterator[TimelineEntry]:
    """The people who tried dead records again, or dismissed them."""
    rows = RecoveryEntry.objects.filter(record_id__in=by_record).exclude(handled_by="")
    # Sort here: for the newest ids of an ORDER BY a database may read its whole table backwards.
    entries = rows.defer("request").order_by()[:_READ_ENTRIES]
    for entry in sorted(entries, key=lambda entry: -entry.pk)[:_SHOWN_ENTRIES]:
        crm = by_record[entry.record_id or 0].policy.crm
        what = str(RecoveryEntry.State(entry.state).label)
        if entry.state == RecoveryEntry.State.OPEN:
            what = _("open, its row is read again")
        title = _("%(crm)s: %(what)s by %(who)s") % {
            "crm": crm, "what": what, "who": entry.handled_by,
        }  # fmt: skip
        link = PageLink.to(entry, _("why it was dead"))
        yield TimelineEntry(entry.handled_at, title, "linked", link)
