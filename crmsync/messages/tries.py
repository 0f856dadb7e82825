"""The latest tries of some records: the requests that were sent, and the answers of the CRMs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from crmsync import orders
from crmsync.messages.states import CrmState
from crmsync.models import Item, Operation, Policy, Record
from msgplatform.core.data import ids

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


@dataclass(frozen=True)
class Tries:
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
