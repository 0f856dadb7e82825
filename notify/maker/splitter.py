"""Split: a delivery of each message for every subscription that wants it, set by set.

One transaction locks the messages, reads the subscriptions, inserts the deliveries and marks the
messages as split, so a killed process leaves nothing half done. A unique (message, subscription)
makes it repeatable. Systems with waiting messages share the transaction by deliveries, so that a
system that hands over a million messages, or whose messages go to thousands of subscriptions, does
not delay another one. Makers pass over each other's locked messages where the database can do that
(SKIP LOCKED); where it cannot they wait for each other, and find them split.

A subscription that has capacity, and no older delivery waiting, gets its deliveries queued by the
split itself: they are inserted as claimed, and put on its queue after the commit.
"""

from __future__ import annotations

import math
import time
import uuid
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from django.conf import settings
from django.db import transaction

from msgplatform.core.data import ids, sql, transactions
from msgplatform.core.errors import Temporary
from msgplatform.core.failpoints import failpoint
from notify import orders
from notify.directory import Subscription, Subscriptions
from notify.maker import enqueue, fanout, payloads
from notify.maker.capacity import Capacity
from notify.maker.fanout import Slice
from notify.maker.payloads import Message
from notify.models import ReceiveMsg
from notify.monitor import counters
from notify.monitor.catalogue_subjects import CatalogueSubjects
from notify.turns import in_turns

BATCH = 1000
# Deliveries in one transaction: a thousand subscriptions make a million of a full batch. Messages
# that are accepted meanwhile wait for it, so it has only as many as a split lately made in time.
MIN_DELIVERIES, MAX_DELIVERIES = 2_000, 20_000
SPLIT_SECONDS = 0.2
# Bytes of payloads in a batch, estimated from the last one's.
_BATCH_BYTES = 16 * 1024 * 1024
# So many ids are always reserved: a few messages are split at once whatever the last ones took.
_MIN_IDS = 256
# Systems in one transaction, the longest waiting first.
_MAX_SYSTEMS = 200
# What a system may take of its equal share: the others may have less than theirs.
_SHARES = 2


@dataclass(slots=True)
class _Plan:
    """What one transaction splits, and the orders that follow from it."""

    slices: list[Slice] = field(default_factory=list)
    orders: list[tuple[Subscription, Sequence[Message]]] = field(default_factory=list)
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    # (delivery, message, subscription) of what was claimed
    rows: Sequence[tuple[int, int, int]] = ()
    lease_until: float = 0.0

    @property
    def messages(self) -> list[Message]:
        return [message for part in self.slices for message in part.messages]

    @property
    def deliveries(self) -> int:
        return sum(part.deliveries for part in self.slices)


class _NotEnoughIds(Temporary):
    """Ids are reserved outside of transactions, before it is known how many are needed."""

    def __init__(self, deliveries: int) -> None:
        super().__init__(f"{deliveries} deliveries need more ids than were reserved")
        self.deliveries = deliveries


@dataclass(slots=True)
class _Mean:
    """What a message of a system took lately."""

    deliveries: float = 1.0
    bytes: float = 1.0


class Splitter:
    """Remembers how many deliveries and bytes a message of each system has lately, to lock no more
    messages than one transaction should hold, and to reserve about as many ids as are needed: many
    more would run ahead of the clock."""

    def __init__(self, subscriptions: Subscriptions, event_types: CatalogueSubjects) -> None:
        self._subscriptions, self._event_types = subscriptions, event_types
        self._means: dict[int, _Mean] = defaultdict(_Mean)
        self._max_deliveries = MAX_DELIVERIES

    def waiting(self) -> dict[int, int]:
        """How many messages of each system the next split may take. An idle turn costs one index
        dive a system."""
        systems = payloads.waiting_systems(_MAX_SYSTEMS)
        if not systems:
            return {}
        share = 1.0 if len(systems) == 1 else min(1.0, _SHARES / len(systems))
        limits = {}
        for biz_id in systems:
            mean = self._means[biz_id]
            limit = min(BATCH, self._max_deliveries / mean.deliveries, _BATCH_BYTES / mean.bytes)
            limits[biz_id] = max(1, int(limit * share))
        return payloads.count_accepted(limits)

    def split(
        self,
        limits: Mapping[int, int] | None = None,
        capacity: Capacity | None = None,
        behind: Collection[int] = (),
    ) -> tuple[int, int]:
        """Split up to so many messages of each system: how many they were, and how many deliveries
        were queued.

        Without a `capacity` nothing is queued; nor for subscriptions that are `behind`.
        """
        limits = self.waiting() if limits is None else limits
        if not limits:
            return 0, 0
        self._event_types.refresh()
        expected = sum(count * self._means[biz_id].deliveries for biz_id, count in limits.items())
        needed = max(_MIN_IDS, min(self._max_deliveries, math.ceil(expected)))
        began = time.monotonic()
        while True:
            try:
                plan = transactions.retrying(
                    partial(self.split_once, limits, needed, capacity, behind)
                )
                break
            except _NotEnoughIds as error:
                needed = error.deliveries
        failpoint("maker_split_after_commit")
        inserted: dict[int, dict[int, int]] = defaultdict(dict)  # subscription → message → delivery
        for delivery_id, message_id, subscription_id in plan.rows:
            inserted[subscription_id][message_id] = delivery_id
        claimed, due = [], plan.lease_until - settings.NOTIFY_LEASE_SECONDS
        for subscription, messages in in_turns(plan.orders, lambda order: order[0].biz_id):
            made = inserted[subscription.id]  # less than planned, when a delivery was there before
            items = [(made[m.id], 1, m, due) for m in messages if m.id in made]
            is_probe = capacity is not None and capacity.is_probe_requested(subscription)
            claimed.append(
                enqueue.Claimed(subscription, plan.token, plan.lease_until, items, is_probe)
            )
        enqueue.put(claimed)
        if plan.deliveries >= MIN_DELIVERIES / 2:  # of a small one most of the time is fixed
            in_time = int(plan.deliveries * SPLIT_SECONDS / (time.monotonic() - began))
            self._max_deliveries = max(MIN_DELIVERIES, min(MAX_DELIVERIES, in_time))
        return len(plan.messages), len(plan.rows)

    def split_once(
        self,
        limits: Mapping[int, int],
        needed: int,
        capacity: Capacity | None,
        behind: Collection[int],
    ) -> _Plan:
        """One transaction. Each repeat reserves new ids: when only the answer to a COMMIT was lost,
        the first ids are in the table, and the repeat takes other messages."""
        # Outside of the transaction: a rollback must not undo the record of what was given.
        block = ids.reserve(needed)
        plan = _Plan()
        try:
            with transaction.atomic(durable=True):
                messages = payloads.lock_accepted(limits, payloads=capacity is not None)
                self._choose(plan, messages, block.count)
                if capacity:
                    self._plan_orders(plan, capacity, behind)
                _write(plan, block, self._event_types)
                failpoint("maker_split_before_commit")
        except BaseException:
            if capacity:  # nothing will be put: what was taken for it is free again
                for subscription, _ in plan.orders:
                    capacity.take(subscription, -1)
            raise
        return plan

    def _choose(self, plan: _Plan, messages: Sequence[Message], reserved: int) -> None:
        """As many of the messages as there are ids for, in turns of their systems; the others stay
        as they are."""
        if not messages:
            return
        most = min(reserved, self._max_deliveries)
        # After the messages are locked: see `Wanted`.
        wanted = fanout.Wanted({message.biz_id for message in messages})
        self._measure(messages, wanted)
        turns = in_turns(messages, lambda m: m.biz_id, lambda m: len(wanted.by(m)))
        for part in fanout.slices(turns[:BATCH], wanted, orders.MAX_ITEMS, most):
            if plan.slices and plan.deliveries + part.deliveries > most:
                break
            plan.slices.append(part)
        if plan.deliveries > reserved:  # one message for very many subscriptions
            raise _NotEnoughIds(plan.deliveries)

    def _measure(self, messages: Sequence[Message], wanted: fanout.Wanted) -> None:
        by_system: dict[int, list[Message]] = defaultdict(list)
        for message in messages:
            by_system[message.biz_id].append(message)
        for biz_id, some in by_system.items():
            deliveries = sum(len(wanted.by(message)) for message in some)
            size = sum(message.size for message in some)
            self._means[biz_id] = _Mean(
                max(1.0, deliveries / len(some)), max(1.0, size / len(some))
            )

    def _plan_orders(self, plan: _Plan, capacity: Capacity, behind: Collection[int]) -> None:
        """Which subscriptions get whole slices queued at once. One that was refused gets nothing
        more in this turn: its deliveries are queued in their order."""
        refused = set(behind)
        for part in plan.slices:
            for subscription_id, messages in part.by_subscription().items():
                if subscription_id in refused:
                    continue
                subscription = self._subscriptions.get(subscription_id)
                if not all(message.is_readable for message in messages):
                    subscription = None  # the dispatcher sets such deliveries aside
                planned = _cut(subscription, messages, capacity) if subscription else None
                if subscription is None or planned is None:
                    refused.add(subscription_id)
                else:
                    part.direct.add(subscription_id)
                    plan.orders += [(subscription, order) for order in planned]


def _cut(
    subscription: Subscription, messages: Sequence[Message], capacity: Capacity
) -> list[Sequence[Message]] | None:
    """The messages cut into orders, or None when there is no capacity for all of them."""
    planned: list[Sequence[Message]] = []
    rest = messages
    while rest:
        offer = capacity.offer(subscription) if subscription.sendable else None
        if offer is None:
            capacity.take(subscription, -len(planned))
            return None
        fitting = orders.fitting([message.size for message in rest], offer.items, offer.bytes)
        planned.append(rest[:fitting])
        rest = rest[fitting:]
        capacity.take(subscription)
    return planned


def _write(plan: _Plan, block: ids.Block, event_types: CatalogueSubjects) -> None:
    """Insert the deliveries, mark the messages, read back which deliveries are claimed."""
    base = block.base
    for part in plan.slices:
        fanout.insert(part, base, block.node, plan.token, settings.NOTIFY_LEASE_SECONDS)
        base += part.deliveries
        fanout.mark_split(part)
    if plan.orders:
        plan.rows = fanout.inserted(block.base, base - block.base, plan.token)
    if plan.rows:
        until = ReceiveMsg.objects.values_list("next_at", flat=True).get(id=plan.rows[0][0])
        plan.lease_until = until.timestamp()
    if plan.slices:
        # Last, because other makers wait for this row until the commit.
        accepted = [(message.biz_id, message.event_type) for message in plan.messages]
        counters.accepted(accepted, event_types, sql.now())
