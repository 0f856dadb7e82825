"""The latest tries of some records: the requests that were sent, and the answers of the CRMs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from crmsync import orders
from crmsync.messages.states import CrmState
from crmsync.models import Item, Operation

# The latest ones, of all CRMs together.
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
    """`items` are in the order of time, `earlier` is the newest one that is not shown. `requests`
    are those of the newest `operations`, which are descending."""

    items: Sequence[Item]
    earlier: Item | None
    operations: Sequence[int]
    requests: Requests


def read_tries(states: Sequence[CrmState]) -> Tries:
    """The latest tries of all records together; a fixed number of queries."""
    records = {state.record.pk: state.record for state in states if state.record}
    rows = Item.objects.filter(record_id__in=records).order_by("-id")
    # One more than is shown tells whether there are others.
    items = list(rows[: SHOWN_TRIES + 1])[::-1]
    earlier = items.pop(0) if len(items) > SHOWN_TRIES else None
    operation_ids = {item.operation_id for item in items}
    for record in records.values():
        operation_ids |= {record.operation_id, record.sending_operation}
    operations = sorted(operation_ids - {0}, reverse=True)
    # Only so many are decoded: the data of an operation holds hundreds of requests.
    return Tries(items, earlier, operations, _requests(states, operations[:SHOWN_OPERATIONS]))


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


def _requests(states: Iterable[CrmState], operations: Sequence[int]) -> Requests:
    """The requests of records in these operations, as far as the operations are kept."""
    keys = {s.policy.pk: s.policy.key_prefix + s.record.key for s in states if s.record}
    rows = Operation.objects.filter(id__in=operations, policy_id__in=keys)
    return {
        (pk, policy): request
        for pk, policy, data in rows.values_list("id", "policy_id", "data")
        for request in orders.load(bytes(data))
        if request.key == keys[policy]
    }
