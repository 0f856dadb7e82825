"""Failures: deliveries that are exhausted, or poison by the platform's own fault.

The code that ends a delivery counts it here, in the same transaction, and so does the code that
resends one (`msgplatform/monitor/failure_store.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from django.utils.translation import gettext_noop as _

from msgplatform.core.flows import Failure, ViewLink
from msgplatform.core.lazy_text import lazy_message
from msgplatform.monitor import failure_store
from msgplatform.monitor.failure_store import Back, Lost
from notify.models import BizReceive, ReceiveMsg
from notify.monitor import runbooks
from notify.monitor.counters import FLOW
from notify.orders import Result

_Status = ReceiveMsg.Status
STATUSES = (_Status.EXHAUSTED, _Status.POISON)
_POISON = "poison: "
_SENDING = (BizReceive.Status.NORMAL, BizReceive.Status.SKIPPING)
# The columns of a delivery that `answer` and `take_back` need.
COLUMNS = ("status", "biz_receive_id", "http_status", "error", "updated_at")


def answer(status: int, http_status: int, error: str) -> str:
    """The answer to the last attempt of a failure: timeout, HTTP 503."""
    text = error or f"HTTP {http_status}"
    return f"{_POISON}{text}" if status == _Status.POISON else text


def exhausted(results: Iterable[Result], now: datetime) -> None:
    """Count deliveries that these results ended, in the caller's transaction."""
    losses = []
    for result in results:
        why = answer(_Status.EXHAUSTED, result.http_status, result.error)
        text = result.response_body or result.detail
        losses.append(Lost(result.subscription, why, result.id, text))
    failure_store.add(FLOW, losses, now)


def ended(
    status: int, subscription: int, deliveries: Sequence[int], error: str, now: datetime
) -> None:
    """Count deliveries that ended without an attempt, in the caller's transaction."""
    why = answer(status, 0, error)
    failure_store.add(FLOW, [Lost(subscription, why, delivery) for delivery in deliveries], now)


def take_back(deliveries: QuerySet[ReceiveMsg]) -> None:
    """Remove these deliveries from the counts: they are resent, or have arrived after all. They
    must be locked; call it before they change."""
    counted(deliveries.filter(status__in=STATUSES).values_list(*COLUMNS))


def counted(rows: Iterable[Sequence[Any]]) -> None:
    """Remove deliveries from the counts by their COLUMNS, as they are before they change."""
    returns = []
    for status, subscription, http_status, error, ended_at in rows:
        if status in STATUSES:
            returns.append(Back(subscription, answer(status, http_status, error), ended_at))
    failure_store.take_back(FLOW, returns)


def counts(subscription_ids: Collection[int]) -> dict[int, int]:
    """The number of failures of each that were neither resent nor acknowledged; one statement."""
    return failure_store.by_subject(FLOW, subscription_ids)


def failures() -> list[Failure]:
    """The failures of each subscription, by answer."""
    groups = failure_store.groups(FLOW)
    rows = BizReceive.objects.filter(id__in={group.subject for group in groups})
    subscriptions = {row.pk: row for row in rows.select_related("biz", "receive").only(
        "status", "biz__name", "biz__title", "receive__name", "receive__title"
    )}  # fmt: skip
    messages = dict(
        ReceiveMsg.objects.filter(id__in=[group.sample for group in groups]).values_list(
            "id", "msg_id"
        )
    )
    failures = []
    for group in groups:
        pk, where_page = group.subject, None
        where: str = lazy_message(_("subscription %(id)d, which was deleted"), id=pk)
        which = str(pk)
        if row := subscriptions.get(pk):
            where_page, where = ViewLink("admin:notify_bizreceive_change", (pk,)), str(row)
            which = f"{row.biz.name}/{row.receive.name}"  # as people write it in the filter
        status = "poison" if group.answer.startswith(_POISON) else "exhausted"
        message = messages.get(group.sample)  # archived ones are not looked for
        query = {"subscription": str(pk), "status": status}
        failures.append(
            failure_store.failure(
                group,
                where=where,
                where_page=where_page,
                message=str(message) if message else "",
                list_page=ViewLink("console:find", (FLOW,), query),
                action="requeue",
                filter={
                    "subscription": which,
                    "status": status,
                    "answer": group.answer,
                },
                place_filter={"subscription": which, "status": status},
                button=runbooks.DELIVER_NOW if row and row.status in _SENDING else None,
            )
        )
    return failures
