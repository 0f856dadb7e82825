"""Split: a copy of each message for every subscription that wants it, set by set.

One transaction locks the messages, reads the subscriptions, inserts the copies and marks the
messages as split, so a killed process leaves nothing half done. A unique (message, subscription)
makes it repeatable. Makers pass over each other's locked messages where the database can do that
(SKIP LOCKED); where it cannot they wait for each other, and find them split.

A subscription that has room and no older copy waiting gets its copies queued by the split itself:
they are inserted as claimed ones, and put on its queue after the commit.
"""

from __future__ import annotations

import math
import uuid
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet

from msgplatform.core.data import ids, sql
from msgplatform.core.errors import Temporary
from msgplatform.core.failpoints import failpoint
from notify import orders
from notify.directory import Subscription, Subscriptions
from notify.maker import enqueue, fanout, payloads
from notify.maker.capacity import Room
from notify.maker.fanout import Slice
from notify.maker.payloads import Message
from notify.models import BizMsg, ReceiveMsg
from notify.monitor import counters

BATCH = 1000
# Copies in one transaction: a thousand subscriptions make a million of a full batch.
MAX_COPIES = 20_000
# Bytes of payloads in a batch, going by the last one's.
_BATCH_BYTES = 16 * 1024 * 1024
# So many ids are always reserved: a few messages are split at once whatever the last ones took.
_LEAST_IDS = 256


@dataclass(slots=True)
class _Plan:
    """What one transaction splits, and the orders that follow from it."""

    slices: list[Slice] = field(default_factory=list)
    orders: list[tuple[Subscription, Sequence[Message]]] = field(default_factory=list)
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    rows: Sequence[tuple[int, int, int]] = ()  # copy, message, subscription of what was claimed
    lease_until: float = 0.0

    @property
    def messages(self) -> list[Message]:
        return [message for part in self.slices for message in part.messages]

    @property
    def copies(self) -> int:
        return sum(part.copies for part in self.slices)


class _NotEnoughIds(Temporary):
    """Ids are reserved outside of transactions, before it is known how many are needed."""

    def __init__(self, copies: int) -> None:
        super().__init__(f"{copies} copies need more ids than were reserved")
        self.copies = copies


class Splitter:
    """Remembers how many copies and bytes a message has lately, to lock no more than is good and
    reserve about as many ids as are needed: many more would run ahead of the clock."""

    def __init__(self, subscriptions: Subscriptions) -> None:
        self._subscriptions = subscriptions
        self._copies = self._bytes = 1.0

    def waiting(self) -> int:
        """How many messages the next split may take; an idle turn asks only this."""
        limit = min(BATCH, MAX_COPIES / self._copies, _BATCH_BYTES / self._bytes)
        return _accepted()[: max(1, int(limit))].count()

    def split(
        self, limit: int | None = None, room: Room | None = None, behind: Collection[int] = ()
    ) -> tuple[int, int]:
        """Split up to `limit` messages: how many they were, and how many copies were queued.

        Without a `room` nothing is queued; nor for subscriptions that are `behind`.
        """
        limit = self.waiting() if limit is None else limit
        if not limit:
            return 0, 0
        needed = max(_LEAST_IDS, math.ceil(limit * self._copies))
        while True:
            try:
                plan = sql.retrying(partial(self._split_with_ids, limit, needed, room, behind))
            except _NotEnoughIds as error:
                needed = error.copies
                continue
            failpoint("maker_split_after_commit")
            enqueue.put(_claimed(plan))
            return len(plan.messages), len(plan.rows)

    def _split_with_ids(
        self, limit: int, needed: int, room: Room | None, behind: Collection[int]
    ) -> _Plan:
        """With ids of its own each time: when the answer to a COMMIT was lost, what is repeated
        takes other messages, whose copies must not get the ids of those that are there."""
        # Outside of the transaction: a rollback must not undo the record of what was given.
        return self._split_once(limit, ids.reserve(needed), room, behind)

    def _split_once(
        self, limit: int, block: ids.Block, room: Room | None, behind: Collection[int]
    ) -> _Plan:
        plan = _Plan()
        try:
            with transaction.atomic(durable=True):
                messages = payloads.lock_accepted(limit, payloads=room is not None)
                self._choose(plan, messages, block.count)
                if room:
                    self._plan_orders(plan, room, behind)
                _write(plan, block)
                failpoint("maker_split_before_commit")
        except BaseException:
            for subscription, _ in plan.orders:
                room.take(subscription, -1) if room else None
            raise
        return plan

    def _choose(self, plan: _Plan, messages: Sequence[Message], reserved: int) -> None:
        """As many of the messages as there are ids for; the others stay as they are."""
        if not messages:
            return
        most = min(reserved, MAX_COPIES)
        wanted = fanout.Wanted({message.biz_id for message in messages})
        parts = fanout.slices(messages, wanted, orders.MAX_ITEMS, most)
        self._copies = max(1.0, sum(part.copies for part in parts) / len(messages))
        self._bytes = max(1.0, sum(message.size for message in messages) / len(messages))
        for part in parts:
            if plan.slices and plan.copies + part.copies > most:
                break
            plan.slices.append(part)
        if plan.copies > reserved:  # one message for very many subscriptions
            raise _NotEnoughIds(plan.copies)

    def _plan_orders(self, plan: _Plan, room: Room, behind: Collection[int]) -> None:
        refused = set(behind)
        for part in plan.slices:
            self._plan_slice(plan, part, room, refused)

    def _plan_slice(self, plan: _Plan, part: Slice, room: Room, refused: set[int]) -> None:
        """Who gets the whole slice queued at once. One that does not gets nothing more this turn:
        its copies are queued in their order."""
        for subscription_id, messages in part.by_subscription().items():
            if subscription_id in refused:
                continue
            subscription = self._subscriptions.get(subscription_id)
            planned = _cut(subscription, messages, room) if subscription else None
            if subscription is None or planned is None:
                refused.add(subscription_id)
            else:
                part.direct.add(subscription_id)
                plan.orders += [(subscription, order) for order in planned]


def _accepted() -> QuerySet[BizMsg]:
    return BizMsg.objects.filter(state=BizMsg.State.ACCEPTED).order_by("id")


def _cut(
    subscription: Subscription, messages: Sequence[Message], room: Room
) -> list[Sequence[Message]] | None:
    """The messages cut into orders for which there is room, or None."""
    planned: list[Sequence[Message]] = []
    rest = messages
    while rest:
        offer = room.offer(subscription) if subscription.sendable else None
        if offer is None:
            room.take(subscription, -len(planned))
            return None
        fitting = orders.fitting([message.size for message in rest], offer.items, offer.bytes)
        planned.append(rest[:fitting])
        rest = rest[fitting:]
        room.take(subscription)
    return planned


def _write(plan: _Plan, block: ids.Block) -> None:
    """Insert the copies, mark the messages, read back which copies are claimed."""
    base = block.base
    for part in plan.slices:
        fanout.insert(part, base, block.node, plan.token, settings.NOTIFY_LEASE_SECONDS)
        base += part.copies
        fanout.mark_split(part)
    if plan.orders:
        plan.rows = fanout.inserted(block.base, base - block.base, plan.token)
    if plan.rows:
        until = ReceiveMsg.objects.values_list("next_at", flat=True).get(id=plan.rows[0][0])
        plan.lease_until = until.timestamp()
    if plan.slices:
        # Last, because other makers wait for this row until the commit.
        counters.accepted((message.biz_id for message in plan.messages), sql.now())


def _claimed(plan: _Plan) -> list[enqueue.Claimed]:
    """The planned orders with what was inserted: less, when a copy was there before."""
    inserted: dict[int, dict[int, int]] = defaultdict(dict)  # subscription → message → copy
    for copy_id, message_id, subscription_id in plan.rows:
        inserted[subscription_id][message_id] = copy_id
    claimed = []
    for subscription, messages in plan.orders:
        copies = inserted[subscription.id]
        items = [(copies[m.id], 1, m) for m in messages if m.id in copies]
        claimed.append(enqueue.Claimed(subscription, plan.token, plan.lease_until, items))
    return claimed
