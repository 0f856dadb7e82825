"""What was sent of some records and what their CRMs said: the latest tries and their requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.utils.translation import gettext_lazy

from crmsync import orders
from crmsync.messages.crm_states import CrmState
from crmsync.models import Item, Operation

# The latest ones, of all CRMs together.
SHOWN_OPERATIONS = 20
SHOWN_TRIES = 100
OUTCOMES = {
    "ok": gettext_lazy("the CRM holds it"),
    "retry": gettext_lazy("not stored"),
    "throttled": gettext_lazy("not stored, the CRM wants fewer calls"),
    "invalid": gettext_lazy("refused for good"),
    "conflict": gettext_lazy("the CRM holds this person as another record"),
    "auth": gettext_lazy("the CRM refused the credentials"),
    "unknown": gettext_lazy("nobody knows whether it is stored"),
    "refused": gettext_lazy("the batch was refused as a whole"),
}
# (operation, policy) → the request of that policy's record.
Requests = Mapping[tuple[int, int], orders.Request]


@dataclass(frozen=True)
class Tries:
    """`items` are in the order of time, and `earlier` is the newest that is not shown. `requests`
    are those of the newest `operations`, which are descending."""

    items: Sequence[Item]
    earlier: Item | None
    operations: Sequence[int]
    requests: Requests


def read(states: Sequence[CrmState]) -> Tries:
    """Of all records together; a fixed number of queries."""
    records = {state.record.pk: state.record for state in states if state.record}
    rows = Item.objects.filter(record_id__in=records).order_by("-id")
    # One more than is shown: if it is there, the page says that there are others.
    items = list(rows[: SHOWN_TRIES + 1])[::-1]
    earlier = items.pop(0) if len(items) > SHOWN_TRIES else None
    named = {
        pk for each in records.values() for pk in (each.operation_id, each.sending_operation) if pk
    }
    wanted = sorted(named | {each.operation_id for each in items}, reverse=True)
    # Only so many are decoded: the data of an operation holds hundreds of requests.
    return Tries(items, earlier, wanted, requests(states, wanted[:SHOWN_OPERATIONS]))


def requests(states: Iterable[CrmState], operations: Sequence[int]) -> Requests:
    """The requests of records in these operations, as far as operations are still kept."""
    keys = {s.policy.pk: s.policy.key_prefix + s.record.key for s in states if s.record}
    rows = Operation.objects.filter(id__in=operations, policy_id__in=keys)
    found = {}
    for pk, policy, data in rows.values_list("id", "policy_id", "data"):
        for request in orders.load(bytes(data)):
            if request.key == keys[policy]:
                found[pk, policy] = request
    return found
