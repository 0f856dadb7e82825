"""The history of records: read, tried, recovered, and their state now; and their latest tries, the
requests that were sent and the answers of the CRMs."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from django.utils.translation import gettext as _, gettext_lazy

from crmsync import orders
from crmsync.messages import explanations
from crmsync.messages.states import CrmState
from crmsync.models import Item, Operation, Policy, Record, RecoveryEntry
from msgplatform.core.data import ids
from msgplatform.core.flows.page import PageLink, TimelineEntry

# Maximum numbers on a page, for all CRMs together.
SHOWN_OPERATIONS = 20
SHOWN_TRIES = 100
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
# (operation, policy) → the request of that policy's record
Requests = Mapping[tuple[int, int], orders.Request]


class Tries(msgspec.Struct, frozen=True):
    """`items`: tries in the order of time. `earlier`: the newest try that is not shown.
    `operations`: operation ids, newest first. `requests`: the requests of these operations."""

    items: Sequence[Item]
    earlier: Item | None
    operations: Sequence[int]
    requests: Requests


def read_tries(states: Sequence[CrmState]) -> Tries:
    """The latest tries of all records; at most one query for each version that is shown."""
    records = {state.record.pk: state.record for state in states if state.record}
    rows = Item.objects.filter(record_id__in=records).order_by("-id")
    # A row beyond those shown means that there are earlier tries.
    items = list(rows[: SHOWN_TRIES + 1])
    operation_ids = {item.operation_id for item in items}
    for record in records.values():
        operation_ids |= {record.operation_id, record.sending_operation}
    # Read these operations and the operations before them, as far as they are stored. Decode at
    # most SHOWN_OPERATIONS of them: each holds hundreds of requests.
    by_policy = {state.policy.pk: state.record for state in states if state.record}
    keys = {s.policy.pk: s.policy.key_prefix + s.record.key for s in states if s.record}
    columns = ("id", "policy_id", "first_try_at", "first_try_ms", "data")
    requests: dict[tuple[int, int], orders.Request] = {}
    without_items: list[Item] = []
    seen_ids: set[int] = set()
    unread_ids = operation_ids - {0}
    while unread_ids and len(seen_ids) < SHOWN_OPERATIONS:
        # Newest operations first, for all records together.
        newest_ids = sorted(unread_ids, reverse=True)[: SHOWN_OPERATIONS - len(seen_ids)]
        seen_ids.update(newest_ids)
        operations = Operation.objects.filter(id__in=newest_ids, policy_id__in=keys)
        for pk, policy, at, milliseconds, data in operations.values_list(*columns):
            for request in orders.load(bytes(data)):
                if request.key == keys[policy]:
                    requests[pk, policy] = request
                    unread_ids.add(request.previous or 0)
                    if at is not None:
                        item = _first_try(by_policy[policy], pk, request, at, milliseconds)
                        without_items.append(item)
        unread_ids -= seen_ids | {0}
    # The smaller id comes first where tries have the same millisecond.
    items = sorted([*without_items, *reversed(items)], key=lambda item: item.at)
    earlier = items.pop(-SHOWN_TRIES - 1) if len(items) > SHOWN_TRIES else None
    if earlier is None and unread_ids:
        earlier = Item(at=ids.datetime_of(max(unread_ids)))
    shown_ids = sorted(operation_ids - {0} | {pk for pk, _policy in requests}, reverse=True)
    return Tries(items[-SHOWN_TRIES:], earlier, shown_ids, requests)


def first_tries(operation: Operation, limit: int) -> list[Item]:
    """The tries of an operation whose records were all stored at the first try, as items; at most
    `limit`. An empty list for other operations."""
    if operation.first_try_at is None:
        return []
    prefixes = Policy.objects.filter(pk=operation.policy_id).values_list("key_prefix", flat=True)
    prefix = prefixes.first() or ""
    requests = orders.load(bytes(operation.data))[:limit]
    by_key = {request.key.removeprefix(prefix): request for request in requests}
    rows = Record.objects.filter(policy_id=operation.policy_id, key__in=list(by_key))
    at, milliseconds = operation.first_try_at, operation.first_try_ms or 0
    return [
        _first_try(row, operation.pk, by_key[row.key], at, milliseconds)
        for row in rows.order_by("-id")
    ]


def _first_try(
    record: Record, operation: int, request: orders.Request, at: int, milliseconds: int
) -> Item:
    return Item(
        operation_id=operation, record_id=record.pk, version=request.version, attempt=1,
        outcome="ok", remote_id=record.remote_id, milliseconds=milliseconds,
        at=datetime.fromtimestamp(at / 1000, UTC),
    )  # fmt: skip


def is_success(item: Item) -> bool:
    """True if the CRM holds the record after this try."""
    return item.outcome.lower() == "ok"


def outcome_text(item: Item) -> str:
    outcome = item.outcome.lower()
    return str(_OUTCOMES.get(outcome, outcome))


def answer_parts(item: Item) -> list[str]:
    """The parts of a CRM's answer that are not empty, in words."""
    parts = [
        item.remote_id and _("id in the CRM %s") % item.remote_id,
        item.field and _("field %s") % item.field,
        item.message,
    ]
    return [part for part in parts if part]


_SHOWN_ENTRIES = 20  # entries of the recovery log
_READ_ENTRIES = 1000
_State = Record.State
# The colours of entries, by state.
_DOTS = {"confirmed": "delivered", "dead": "failed", "retry": "waiting", "unread": "waiting"}


def entries(states: Sequence[CrmState], tries: Tries, now: datetime) -> Iterator[TimelineEntry]:
    """Each version that was read, each try, each action of a person, and the state of each record
    at `now`."""
    by_record = {state.record.pk: state for state in states if state.record}
    if tries.earlier:
        more = _("There were more tries; the last %d are shown.") % len(tries.items)
        yield TimelineEntry(tries.earlier.at, more, "linked")
    crms = {state.policy.pk: str(state.policy.crm) for state in states}
    columns = ("id", "policy_id", "run_id", "start_at")
    rows = Operation.objects.filter(id__in=tries.operations).order_by("id").values_list(*columns)
    for pk, policy, run, start in rows:
        request = tries.requests.get((pk, policy))
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
    for item in tries.items:
        parts = [
            _("version %d") % item.version,
            *answer_parts(item),
            _("operation %d") % item.operation_id,
            f"{item.milliseconds} ms",
        ]
        yield TimelineEntry(
            item.at,
            f"{by_record[item.record_id].policy.crm}: {outcome_text(item)}",
            "delivered" if is_success(item) else "attempt",
            " · ".join(parts),
        )
    yield from _recoveries(by_record)
    for state in states:
        record, ended_at, detail = state.record, None, ""
        if record is None or record.state in (_State.HELD, _State.QUEUED):
            detail = explanations.explain(state, {}, now)
        # A waiting record shows what blocks it, or else when it is tried next.
        elif record.state in (_State.WAITING, _State.RETRY):
            next_try = _("due now")
            if record.next_at and record.next_at > now:
                next_try = _("next try at %s") % explanations.local(record.next_at)
            detail = explanations.joined(explanations.blocker(state) or next_try, state.message)
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
