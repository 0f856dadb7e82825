"""Failures: deliveries that are exhausted, or poison by the platform's own fault.

The code that ends a delivery counts it here, in the same transaction, and so does the code that
resends one (`msgplatform/monitor/failure_store.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from django.utils.translation import gettext_lazy, gettext_noop

from msgplatform.core.flows.health import MAX_FAILURES, Button, Failure
from msgplatform.core.flows.text import ViewLink
from msgplatform.models import FailureGroup
from msgplatform.monitor import failure_store
from msgplatform.monitor.failure_store import Loss, Rescue
from msgplatform.monitor.subjects import Subject
from notify.models import BizReceive, ReceiveMsg
from notify.monitor.counters import FLOW
from notify.orders import Result
from notify.subscriptions import sandbox

_Status = ReceiveMsg.Status
STATUSES = (_Status.EXHAUSTED, _Status.POISON)
_POISON = "poison: "
_SENDING = (BizReceive.Status.NORMAL, BizReceive.Status.SKIPPING)
DELIVER_NOW = Button(
    gettext_lazy("Deliver now"), "admin:notify_bizreceive_deliver", "notify.operate_bizreceive"
)
SUBSCRIPTION = Subject(
    "subscription",
    gettext_lazy("subscription"),
    lambda: BizReceive.objects.select_related("biz", "receive").only(
        "status",
        "biz__name",
        "biz__title",
        "receive__name",
        "receive__title",
        "receive__delivery",
        "receive__url",
    ),
    gettext_noop("subscription %(id)d, which was deleted"),
)
# The columns of a delivery that `answer` and `take_back` need.
COLUMNS = ("status", "biz_receive_id", "http_status", "error", "updated_at")


def answer(status: int, http_status: int, error: str) -> str:
    """The answer to the last attempt of a failure: timeout, HTTP 503."""
    text = error or f"HTTP {http_status}"
    return f"{_POISON}{text}" if status == _Status.POISON else text


def count_exhausted(results: Iterable[Result], now: datetime) -> None:
    """Count deliveries that these results ended, in the caller's transaction."""
    losses = []
    for result in results:
        why = answer(_Status.EXHAUSTED, result.http_status, result.error)
        text = result.response_body or result.detail
        losses.append(Loss(result.subscription, why, result.id, text))
    failure_store.add(FLOW, losses, now)


def count_ended(
    status: int, subscription: int, deliveries: Sequence[int], error: str, now: datetime
) -> None:
    """Count deliveries that ended without an attempt, in the caller's transaction."""
    why = answer(status, 0, error)
    failure_store.add(FLOW, [Loss(subscription, why, delivery) for delivery in deliveries], now)


def take_back(deliveries: QuerySet[ReceiveMsg]) -> None:
    """Remove these deliveries from the counts: they are resent, or have arrived after all. They
    must be locked; call it before they change."""
    take_back_rows(deliveries.filter(status__in=STATUSES).values_list(*COLUMNS))


def take_back_rows(rows: Iterable[Sequence[Any]]) -> None:
    """Remove deliveries from the counts by their COLUMNS, as they are before they change."""
    rescues = []
    for status, subscription, http_status, error, ended_at in rows:
        if status in STATUSES:
            rescues.append(Rescue(subscription, answer(status, http_status, error), ended_at))
    failure_store.take_back(FLOW, rescues)


def counts(subscription_ids: Collection[int]) -> dict[int, int]:
    """The number of failures of each that were neither resent nor acknowledged; one statement."""
    return failure_store.count_by_subject(FLOW, subscription_ids)


def _open_since(group: FailureGroup) -> datetime:
    """When the first of its open failures ended: later than `counted_since` where all others were
    acknowledged."""
    return max(group.since, group.counted_since)


def failures(limit: int = MAX_FAILURES) -> list[Failure]:
    """The failures of each subscription, by answer."""
    groups = failure_store.open_groups(FLOW, limit)
    samples = ReceiveMsg.objects.filter(id__in=[group.sample for group in groups])
    # Archived deliveries have no message here.
    message_ids = dict(samples.values_list("id", "msg_id"))

    # A filter by subscription: its bounds leave out no open failure.
    place_bounds: dict[int, dict[str, str]] = {}
    for group in sorted(groups, key=lambda group: (group.has_acknowledged, _open_since(group))):
        is_bound = group.has_acknowledged
        bound = {"failed_since": _open_since(group).isoformat()} if is_bound else {}
        place_bounds.setdefault(group.subject, bound)

    def details(group: FailureGroup, row: BizReceive | None) -> dict[str, Any]:
        status = "poison" if group.answer.startswith(_POISON) else "exhausted"
        name = f"{row.biz.name}/{row.receive.name}" if row else str(group.subject)
        in_place = {"subscription": name, "status": status}
        query = {"subscription": str(group.subject), "status": status}
        return {
            "message": str(message_ids.get(group.sample, "")),
            "list_page": ViewLink("console:find", (FLOW,), query),
            "action": "resend",
            "filter": {**in_place, "answer": group.answer, **group.bound("failed_since")},
            "place_filter": {**in_place, **place_bounds[group.subject]},
            "system": row.biz.name if row else "",
            "button": DELIVER_NOW if row and row.status in _SENDING else None,
            # Nobody has to be told of a listener's failures, nor of a sandbox's.
            "is_quiet": row is not None
            and (row.receive.is_listened or sandbox.is_sandbox(row.receive.url)),
        }

    return SUBSCRIPTION.failures(groups, details)
