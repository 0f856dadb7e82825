"""When the first waiting delivery of each subscription is due: an index dive for each; and for how
long the oldest one waits.

A GROUP BY over the waiting deliveries would read all of them: MariaDB has no loose index scan
behind a constant first column.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import OuterRef, Subquery

from notify.models import ReceiveMsg
from notify.presence import Live


def first(status: int) -> Subquery:
    """For a query of BizReceive: the smallest `next_at` of its deliveries in this status, or NULL.

    It stops at the first row. Whether the time has come is the caller's question: as a condition
    here it would make MariaDB read all rows that do not meet it. The order names all columns of
    the index: by `next_at` alone MySQL 8.4 and later sort the whole backlog.
    """
    rows = ReceiveMsg.objects.filter(status=status, biz_receive_id=OuterRef("pk"))
    in_order = rows.order_by("status", "biz_receive_id", "next_at")
    return Subquery(in_order.values("next_at")[:1])


def oldest_seconds(
    pending: datetime | None, queued: datetime | None, live: Live | None, now: datetime
) -> float | None:
    """For how long a subscription's oldest due delivery has waited; None when none is due.

    `pending` and `queued` are `first` of both statuses, `now` is the database's. A delivery that is
    queued waits too: since it was due, if its sender knows that, or at least since it was claimed.
    """
    ages = []
    if pending and pending <= now:
        ages.append((now - pending).total_seconds())
    if queued:
        claimed = queued - timedelta(seconds=settings.NOTIFY_LEASE_SECONDS)
        ages.append(max(0.0, (now - claimed).total_seconds()))
        if live:
            ages.append(live.oldest_for)
    return max(ages, default=None)
