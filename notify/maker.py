"""Maker: splits messages into a copy per subscription and puts due copies on the queues.

Both steps can be repeated. The split is one transaction; a killed maker's is rolled back. The
claim of due copies commits before they are queued; a maker killed in between leaves copies whose
lease runs out, and the next one queues them again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Min, QuerySet
from django.db.models.functions import Now

from msgplatform.core import claims, ids, logging, queue_names, queues, sql
from msgplatform.core.daemon import Worker
from msgplatform.core.errors import Temporary
from msgplatform.core.failpoints import failpoint
from notify import orders
from notify.models import BizMsg, BizReceive, ReceiveMsg
from notify.subscriptions import Subscription, Subscriptions

log = logging.get(__name__)

SPLIT_BATCH = 500
# Orders waiting or in hand: enough to keep a sender busy, few enough that memory stays bounded
# (an order is at most 1 MiB) and a pause takes effect soon.
ORDERS_PER_SUBSCRIPTION = 4
ORDERS_IN_TOTAL = 256
RECOVER_EVERY_SECONDS = 10.0
# With results this old waiting, expired leases are not reclaimed: their outcome may be in there.
MARKER_LAG_SECONDS = 5.0

_Status = ReceiveMsg.Status

_SPLIT = """
INSERT INTO receive_msg
  (id, msg_id, biz_id, biz_receive_id, status, send_times, next_at, claimed_by, generation,
   http_status, error, created_at, updated_at)
SELECT ((%s + ROW_NUMBER() OVER (ORDER BY m.id, s.id) - 1) << 15) | (%s << 8) | (m.id & 255),
  m.id, m.biz_id, s.id, CASE s.status WHEN {paused} THEN {held} ELSE {pending} END, 0,
  m.created_at, '', 0, 0, '', m.created_at, m.created_at
FROM biz_msg m JOIN biz_receive s ON s.biz_id = m.biz_id
WHERE m.id IN ({{ids}}) AND s.status IN ({normal}, {paused})
""".format(
    paused=int(BizReceive.Status.PAUSED),
    normal=int(BizReceive.Status.NORMAL),
    held=int(_Status.HELD),
    pending=int(_Status.PENDING),
)


class Maker(Worker):
    role = "maker"

    def __init__(self) -> None:
        super().__init__()
        self.subscriptions = Subscriptions()
        self._next_recover = 0.0

    def turn(self) -> bool:
        self.subscriptions.refresh()
        self._recover()
        split = self._split()
        queued = self._queue_due()
        self.heartbeat.done += split + queued
        return bool(split or queued)

    # -- split -----------------------------------------------------------------------------------
    def _split(self) -> int:
        """Claim accepted messages and insert their copies, in one transaction."""
        waiting = BizMsg.objects.filter(state=BizMsg.State.ACCEPTED).order_by("id")
        if not waiting.exists():
            return 0  # an idle turn writes nothing, and reserves no ids
        block = ids.reserve(SPLIT_BATCH * max(1, self._copies_per_message()))
        return sql.retrying(lambda: self._split_once(waiting, block))

    def _copies_per_message(self) -> int:
        counts: dict[int, int] = {}
        for subscription in self.subscriptions.all():
            counts[subscription.biz_id] = counts.get(subscription.biz_id, 0) + 1
        return max(counts.values(), default=0)

    def _split_once(self, waiting: QuerySet[BizMsg], block: ids.Block) -> int:
        with transaction.atomic(durable=True):
            claim = claims.claim(
                waiting, limit=SPLIT_BATCH, lease=60, set={"state": BizMsg.State.SPLIT}
            )
            if claim.ids:
                made = _insert_copies(claim.ids, block)
                if made > block.count:
                    # A subscription appeared between refresh and insert: with more copies than
                    # reserved ids two processes could make the same id. Roll back, read again.
                    self.subscriptions = Subscriptions()
                    raise Temporary("a subscription was added meanwhile; the split is repeated")
            failpoint("maker_split_before_commit")
        failpoint("maker_split_after_commit")
        return len(claim.ids)

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
    def _recover(self) -> None:
        """Clean up after killed senders and markers, now and then."""
        if time.monotonic() < self._next_recover:
            return
        self._next_recover = time.monotonic() + RECOVER_EVERY_SECONDS
        # A result is the only copy of what a subscriber answered; an order can be made again.
        queues.recover(put_back=lambda name: name == queue_names.NOTIFY_MARKER)


def _insert_copies(message_ids: Sequence[int], block: ids.Block) -> int:
    placeholders = ",".join(["%s"] * len(message_ids))
    with connection.cursor() as cursor:
        cursor.execute(
            sql.keep_existing(_SPLIT.format(ids=placeholders), "receive_msg"),
            [block.base, block.node, *message_ids],
        )
        return cursor.rowcount


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
