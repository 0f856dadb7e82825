"""Maker: splits messages (`splitter.py`), then puts due copies on the queues.

The claim of due copies commits before they are queued; a maker killed in between leaves copies
whose lease runs out, and the next one queues them again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db.models import Min
from django.db.models.functions import Now

from msgplatform.core import claims, logging, queue_names, queues
from msgplatform.core.daemon import Worker
from msgplatform.core.failpoints import failpoint
from notify import holds, orders
from notify.models import ReceiveMsg
from notify.splitter import Splitter
from notify.subscriptions import Subscription, Subscriptions

log = logging.get(__name__)

# Orders waiting or in hand: enough to keep a sender busy, few enough that memory stays bounded
# (an order is at most 1 MiB) and a pause takes effect soon.
ORDERS_PER_SUBSCRIPTION = 4
ORDERS_IN_TOTAL = 256
RECOVER_EVERY_SECONDS = 10.0
SETTLE_EVERY_SECONDS = 1.0
# With results this old waiting, expired leases are not reclaimed: their outcome may be in there.
MARKER_LAG_SECONDS = 5.0

_Status = ReceiveMsg.Status


class Maker(Worker):
    role = "maker"

    def __init__(self) -> None:
        super().__init__()
        self.subscriptions = Subscriptions()
        self.splitter = Splitter()
        self._next_recover = self._next_settle = 0.0

    def turn(self) -> bool:
        self.subscriptions.refresh()
        self._recover()
        settled = self._settle_holds()
        split = self.splitter.split()
        queued = self._queue_due()
        self.heartbeat.done += split + queued
        return bool(split or queued or settled)

    # -- queue -----------------------------------------------------------------------------------
    def _queue_due(self) -> int:
        due = self._due()
        room = self._room() if due else {}
        queued = 0
        for subscription, status in due:
            queue = subscription.queue
            while min(room.get(queue, 0), room["total"]) > 0:
                count, made = self._queue_one(subscription, status)
                queued += count
                room[queue] -= made
                room["total"] -= made
                if count < orders.MAX_ITEMS:
                    break
        return queued

    def _room(self) -> dict[str, int]:
        depths = queues.depths([s.queue for s in self.subscriptions.all()])
        room = {name: ORDERS_PER_SUBSCRIPTION - depth for name, depth in depths.items()}
        room["total"] = ORDERS_IN_TOTAL - sum(depths.values())
        return room

    def _may_reclaim(self) -> bool:
        return queues.oldest_seconds(queue_names.NOTIFY_MARKER) < MARKER_LAG_SECONDS

    def _due(self) -> list[tuple[Subscription, int]]:
        """Subscriptions with copies that are due, and in which status; the longest waiting first.

        MIN per (status, subscription) is a loose index scan: its cost is the number of
        subscriptions with such copies, however many copies there are. Each status is claimed by
        itself, because one index range is read in order and two would be sorted.
        """
        oldest: list[tuple[datetime, int, int]] = []
        for status in (_Status.PENDING, _Status.QUEUED):
            if status == _Status.QUEUED and not self._may_reclaim():
                continue
            rows = (
                ReceiveMsg.objects.filter(status=status)
                .values_list("biz_receive_id")
                .annotate(Min("next_at"))
                .order_by()
            )
            oldest += [(next_at, subscription_id, int(status)) for subscription_id, next_at in rows]
        # One second of slack: the claim itself asks the database's clock.
        horizon = datetime.now(UTC) + timedelta(seconds=1)
        found = [
            (self.subscriptions.get(subscription_id), status)
            for next_at, subscription_id, status in sorted(oldest)
            if next_at <= horizon
        ]
        return [(row, status) for row, status in found if row and row.sendable]

    def _queue_one(self, subscription: Subscription, status: int) -> tuple[int, int]:
        """Claim up to one order's worth of copies; (copies, orders) that were queued."""
        due = ReceiveMsg.objects.filter(status=status, biz_receive_id=subscription.id).order_by(
            "next_at"
        )
        lease = settings.NOTIFY_LEASE_SECONDS
        claim = claims.claim(
            due, limit=orders.MAX_ITEMS, lease=lease, until="next_at",
            set={"status": _Status.QUEUED, "updated_at": Now()},
        )  # fmt: skip
        if not claim.ids:
            return 0, 0
        failpoint("maker_after_commit_before_enqueue")
        batches = list(_batches(_items(claim.ids)))
        made = [
            orders.Order(subscription.id, claim.token, claim.lease_until.timestamp(), batch)
            for batch in batches
        ]
        # The order outlives the lease a little: a late one is given back, not lost silently.
        queues.put(subscription.queue, made, ttl=2 * lease)
        return len(claim.ids), len(made)

    # -- recovery --------------------------------------------------------------------------------
    def _settle_holds(self) -> int:
        """Every second, and without a pause while there is something to settle."""
        if time.monotonic() < self._next_settle:
            return 0
        moved = holds.settle()
        self._next_settle = time.monotonic() + (0 if moved else SETTLE_EVERY_SECONDS)
        return moved

    def _recover(self) -> None:
        """Clean up after killed senders and markers, now and then."""
        if time.monotonic() < self._next_recover:
            return
        self._next_recover = time.monotonic() + RECOVER_EVERY_SECONDS
        # A result is the only copy of what a subscriber answered; an order can be made again.
        queues.recover(put_back=lambda name: name == queue_names.NOTIFY_MARKER)


def _items(copy_ids: Sequence[int]) -> Iterator[orders.Item]:
    rows = (
        ReceiveMsg.objects.filter(id__in=copy_ids)
        .order_by("id")
        .values_list(
            "id", "msg_id", "send_times", "msg__event_type", "msg__created_at", "msg__payload"
        )
    )
    for copy_id, msg_id, send_times, event_type, created_at, payload in rows:
        timestamp = created_at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        text = orders.body(event_type, timestamp, bytes(payload))
        yield orders.Item(copy_id, msg_id, send_times + 1, text)


def _batches(items: Iterator[orders.Item]) -> Iterator[list[orders.Item]]:
    """Cut by bytes; the count is bounded by the claim. One large item is a batch of its own."""
    batch: list[orders.Item] = []
    size = 0
    for item in items:
        if batch and size + len(item.body) > orders.MAX_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += len(item.body)
    if batch:
        yield batch
