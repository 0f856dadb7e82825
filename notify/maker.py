"""Maker: splits messages (`splitter.py`), then puts due copies on the queues.

The claim of due copies commits before they are queued; a maker killed in between leaves copies
whose lease runs out, and the next one queues them again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db.models import Min
from django.db.models.functions import Length, Now

from msgplatform.core import claims, logging, queue_names, queues
from msgplatform.core.daemon import Worker
from msgplatform.core.failpoints import failpoint
from notify import holds, orders
from notify.models import ReceiveMsg
from notify.splitter import Splitter
from notify.subscriptions import Subscription, Subscriptions

log = logging.get(__name__)

# Orders waiting or in hand: enough to keep a sender busy, few enough that memory stays bounded
# (an order is at most 1 MiB) and a pause takes effect soon. The total does not count against a
# subscription's first order: the queues of dead subscribers must not keep a healthy one empty.
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
            while _may_queue(room, queue):
                count, made = self._queue_one(subscription, status)
                queued += count
                room[queue] -= made
                room["total"] -= made
                if count < orders.MAX_ITEMS:
                    break
        return queued

    def _room(self) -> dict[str, int]:
        """Orders that each queue may get, and under "total" how many beyond their first."""
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
        packed, left = _pack(claim.ids)
        if left:
            rows = ReceiveMsg.objects.filter(id__in=left, claimed_by=claim.token)
            claims.update_by_key(rows, {"status": _Status.PENDING, "claimed_by": "",
                                        "next_at": Now()})  # fmt: skip
        lease_until = claim.lease_until.timestamp()
        for batch in packed:
            order = orders.Order(subscription.id, claim.token, lease_until, list(_items(batch)))
            # The order outlives the lease a little: a late one is given back, not lost silently.
            queues.put(subscription.queue, [order], ttl=2 * lease)
        return len(claim.ids) - len(left), len(packed)

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


def _may_queue(room: Mapping[str, int], queue: str) -> bool:
    here = room.get(queue, 0)
    return here == ORDERS_PER_SUBSCRIPTION or (here > 0 and room["total"] > 0)


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


def _pack(copy_ids: Sequence[int]) -> tuple[list[list[int]], list[int]]:
    """Copies by order, cut by bytes, and those that are too much for one subscription's share.

    Sizes are asked first, so that no more than one order's payloads are in memory. A large item
    is an order of its own.
    """
    sizes = ReceiveMsg.objects.filter(id__in=copy_ids).annotate(size=Length("msg__payload"))
    packed: list[list[int]] = [[]]
    filled = 0
    for copy_id, size in sizes.order_by("id").values_list("id", "size"):
        if packed[-1] and filled + size > orders.MAX_BYTES:
            packed.append([])
            filled = 0
        packed[-1].append(copy_id)
        filled += size
    left = [copy_id for batch in packed[ORDERS_PER_SUBSCRIPTION:] for copy_id in batch]
    return packed[:ORDERS_PER_SUBSCRIPTION], left
