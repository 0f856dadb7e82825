"""When the first waiting delivery of each subscription is due: an index dive for each.

A GROUP BY over the waiting deliveries would read all of them: MariaDB has no loose index scan
behind a constant first column.
"""

from __future__ import annotations

from django.db.models import OuterRef, Subquery

from notify.models import ReceiveMsg


def first(status: int) -> Subquery:
    """For a query of BizReceive: the smallest `next_at` of its deliveries in this status, or NULL.

    It stops at the first row. Whether the time has come is the caller's question: as a condition
    here it would make MariaDB read all rows that do not meet it. The order names all columns of
    the index: by `next_at` alone MySQL 8.4 and later sort the whole backlog.
    """
    rows = ReceiveMsg.objects.filter(status=status, biz_receive_id=OuterRef("pk"))
    in_order = rows.order_by("status", "biz_receive_id", "next_at")
    return Subquery(in_order.values("next_at")[:1])
