"""Deliveries that were given up: exhausted, or poison by our own fault.

Whoever ends one so says it here, in the same transaction, and so does whoever sends one again
(`msgplatform/monitor/failure_store.py`).
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
# What `answer` and `take_back` need of a delivery.
COLUMNS = ("status", "biz_receive_id", "http_status", "error", "updated_at")


def answer(status: int, http_status: int, error: str) -> str:
    """How the last attempt of a delivery that was given up ended: timeout, HTTP 503."""
    text = error or f"HTTP {http_status}"
    return f"{_POISON}{text}" if status == _Status.POISON else text


def exhausted(results: Iterable[Result], now: datetime) -> None:
    """Count deliveries that these results ended, in the caller's transaction."""
    losses = [
        Lost(r.subscription, answer(_Status.EXHAUSTED, r.http_status, r.error), r.id, _said(r))
        for r in results
    ]
    failure_store.add(FLOW, losses, now)


def ended(
    status: int, subscription: int, deliveries: Sequence[int], error: str, now: datetime
) -> None:
    """Count deliveries that ended without an attempt, in the caller's transaction."""
    why = answer(status, 0, error)
    failure_store.add(FLOW, [Lost(subscription, why, delivery) for delivery in deliveries], now)


def take_back(deliveries: QuerySet[ReceiveMsg]) -> None:
    """These are sent again, or have arrived after all: they are locked, and change after this."""
    counted(deliveries.filter(status__in=STATUSES).values_list(*COLUMNS))


def counted(rows: Iterable[Sequence[Any]]) -> None:
    """Take back deliveries by their COLUMNS, as they are before they change."""
    returns = []
    for status, subscription, http_status, error, ended_at in rows:
        if status in STATUSES:
            returns.append(Back(subscription, answer(status, http_status, error), ended_at))
    failure_store.take_back(FLOW, returns)


def counts(subscription_ids: Collection[int]) -> dict[int, int]:
    """How many deliveries of each nobody has sent again or acknowledged; one statement."""
    return failure_store.by_subject(FLOW, subscription_ids)


def failures() -> list[Failure]:
    """What was given up of each subscription, by answer."""
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


def _said(result: Result) -> str:
    return result.response_body or result.detail
