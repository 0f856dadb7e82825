"""Failures: deliveries that are exhausted, or poison by the platform's own fault.

A transaction that ends or resends deliveries counts them by these functions, which call
`msgplatform/monitor/failure_store.py`. `subjects.py` shows the failures.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from msgplatform.monitor import failure_store
from notify.models import BizMsg, ReceiveMsg
from notify.monitor import counters
from notify.monitor.counters import FLOW, CatalogueSubjects
from notify.orders import Result

_Status = ReceiveMsg.Status
POISON = "poison: "
# The columns of a delivery that `answer` and `take_back` need.
COLUMNS = ("status", "biz_receive_id", "http_status", "error", "updated_at")


def answer(status: int, http_status: int, error: str) -> str:
    """The answer to the last attempt of a failure: timeout, HTTP 503."""
    text = error or f"HTTP {http_status}"
    return f"{POISON}{text}" if status == _Status.POISON else text


def count_exhausted(results: Iterable[Result], now: datetime) -> None:
    """Count deliveries that these results ended, in the caller's transaction."""
    losses = []
    for result in results:
        why = answer(_Status.EXHAUSTED, result.http_status, result.error)
        text = result.response_body or result.detail
        losses.append(failure_store.Loss(result.subscription, why, result.id, text))
    failure_store.add(FLOW, losses, now)


def count_ended(
    status: int,
    subscription: int,
    delivery_ids: Sequence[int],
    error: str,
    now: datetime,
    event_types: CatalogueSubjects,
) -> counters.Counts:
    """Count deliveries that ended without an attempt, here and in the statistics, in the caller's
    transaction. Returns the counts of the statistics."""
    why, counts = answer(status, 0, error), counters.Counts()
    losses = [failure_store.Loss(subscription, why, delivery_id) for delivery_id in delivery_ids]
    failure_store.add(FLOW, losses, now)
    name = counters.POISON if status == _Status.POISON else counters.EXHAUSTED
    rows = ReceiveMsg.objects.filter(id__in=delivery_ids).order_by()
    messages = list(rows.values_list("biz_id", "msg_id"))
    message_rows = BizMsg.objects.filter(id__in={message for _, message in messages}).order_by()
    event_type_of = dict(message_rows.values_list("id", "event_type"))
    for biz, message in messages:
        # A deleted message has no event type.
        event_type = event_types.subject(biz, event_type_of.get(message, ""))
        for subject in (subscription, event_type):
            counts[counters.Key(biz, subject, name)] += 1
    counters.add(counts, now)
    return counts


def take_back(rows: Iterable[Sequence[Any]]) -> None:
    """Remove deliveries from the counts: they are resent, or have arrived late. `rows`: COLUMNS of
    the deliveries, which must be locked, before they change."""
    rescues = [
        failure_store.Rescue(subscription, answer(status, http_status, error), ended_at)
        for status, subscription, http_status, error, ended_at in rows
        if status in ReceiveMsg.FAILED
    ]
    failure_store.take_back(FLOW, rescues)
