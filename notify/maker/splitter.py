"""Split: insert a delivery of each message for every recipient, set by set.

One transaction locks the messages, reads the subscriptions, inserts the deliveries and marks the
messages as split, so a killed process leaves nothing half done. (message, subscription) is unique,
so a split can be repeated. Systems with waiting messages share the transaction by deliveries: a
system with a million messages, or with thousands of subscriptions, does not delay another system.
Makers skip messages that another maker has locked, where the database can do that (SKIP LOCKED);
otherwise a maker waits, and finds the messages split.

A split queues the deliveries of a subscription that has capacity and no older waiting delivery: the
deliveries are inserted as claimed, and put on the queue after the commit.
"""

import math
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

import msgspec
from django.conf import settings
from django.db import DatabaseError, transaction
from django.db.models.functions import Now

from msgplatform.core.daemons import bisect
from msgplatform.core.data import ids, sql, transactions
from msgplatform.core.errors import Temporary
from msgplatform.core.failpoints import failpoint
from msgplatform.core.tracing import spans
from notify import orders, signals
from notify.directory import Subscription, Subscriptions
from notify.maker import ending, enqueue, fanout
from notify.maker.capacity import Capacity
from notify.maker.enqueue import Message
from notify.models import ReceiveMsg
from notify.monitor import counters

BATCH = 1000
# Deliveries in one transaction: a full batch for a thousand subscriptions would be a million. New
# messages wait for the transaction, so its size follows the speed of the last split.
MIN_DELIVERIES, MAX_DELIVERIES = 2_000, 20_000
SPLIT_SECONDS = 0.2
# Bytes of payloads in a batch, estimated from earlier batches.
_BATCH_BYTES = 16 * 1024 * 1024
# Ids that are always reserved, so that a few messages with unexpectedly many recipients are split
# at once.
_MIN_IDS = 256
# Orders of a system that a split puts on queues itself. The dispatcher queues the deliveries for
# further recipients, in bounded time: thousands of orders would delay all systems.
_MAX_ORDERS = 500
# Systems in one transaction, the longest waiting first.
_MAX_SYSTEMS = 200
# A system may take this number of equal shares, because other systems may need less than theirs.
_SHARES = 2


class _Plan(msgspec.Struct):
    """The slices that one transaction splits, and the orders made of the slices."""

    slices: list[fanout.Slice] = msgspec.field(default_factory=list)
    orders: list[tuple[Subscription, Sequence[Message]]] = msgspec.field(default_factory=list)
    # Message → subscriptions whose payload filter excludes the message.
    excluded: dict[int, set[int]] = msgspec.field(default_factory=dict)
    token: str = msgspec.field(default_factory=lambda: uuid.uuid4().hex)
    # (delivery, message, subscription) of the claimed deliveries
    rows: Sequence[tuple[int, int, int]] = ()
    lease_until: float = 0.0

    @property
    def messages(self) -> list[Message]:
        return [message for part in self.slices for message in part.messages]

    @property
    def recipients(self) -> set[tuple[int, ...]]:
        """The sets of recipients of the messages, each set once."""
        return {subscriptions for part in self.slices for subscriptions in part.recipients}

    @property
    def deliveries(self) -> int:
        return sum(part.deliveries for part in self.slices)


class _NotEnoughIds(Temporary):
    """Ids are reserved outside of the transaction, before the number of deliveries is known."""

    def __init__(self, deliveries: int) -> None:
        super().__init__(f"{deliveries} deliveries need more ids than were reserved")
        self.deliveries = deliveries


class _Mean(msgspec.Struct):
    deliveries: float = 1.0
    bytes: float = 1.0


class Splitter:
    """Splits messages. It remembers each system's deliveries and bytes of a message, to lock no
    more messages than fit one transaction, and to reserve about the needed number of ids. Too many
    reserved ids would run ahead of the clock.

    `expect` is called with the subscriptions whose deliveries the split did not queue.
    """

    def __init__(
        self,
        subscriptions: Subscriptions,
        event_types: counters.CatalogueSubjects,
        expect: Callable[[Iterable[int]], None] = lambda _subscription_ids: None,
    ) -> None:
        self._subscriptions, self._event_types = subscriptions, event_types
        self._expect = expect
        self._recipients = fanout.Recipients()
        self._means: dict[int, _Mean] = defaultdict(_Mean)
        self._max_deliveries = MAX_DELIVERIES
        self._locked_ids: Sequence[int] = ()  # messages of the latest transaction

    def waiting(self) -> dict[int, int]:
        """System → number of messages that the next split may take. An idle turn costs one index
        dive for each system."""
        systems = enqueue.waiting_systems(_MAX_SYSTEMS)
        if not systems:
            return {}
        share = 1.0 if len(systems) == 1 else min(1.0, _SHARES / len(systems))
        limits = {}
        for biz_id in systems:
            mean = self._means[biz_id]
            limit = min(BATCH, self._max_deliveries / mean.deliveries, _BATCH_BYTES / mean.bytes)
            limits[biz_id] = max(1, int(limit * share))
        return enqueue.count_accepted(limits)

    def split(
        self,
        limits: Mapping[int, int] | None = None,
        capacity: Capacity | None = None,
        behind_ids: Collection[int] = (),
    ) -> tuple[int, int]:
        """Split up to `limits` messages of each system; returns the numbers of messages split and
        of deliveries queued.

        Nothing is queued without a `capacity`, or for the subscriptions in `behind_ids`. A message
        that the database refuses to split is set aside.
        """
        limits = self.waiting() if limits is None else limits
        if not limits:
            return 0, 0
        self._event_types.refresh()
        try:
            return self._split(limits, capacity, behind_ids)
        except Exception as error:
            if bisect.is_unavailable(error):
                raise
        # In a system where splitting together fails, messages are split one by one.
        split_count = queued_count = 0
        failures: list[tuple[Sequence[int], Exception]] = []
        for biz_id, limit in limits.items():
            for count in (limit, *[1] * limit):
                try:
                    counts = self._split({biz_id: count}, capacity, behind_ids)
                except DatabaseError as error:
                    if count == 1:
                        failures.append((self._locked_ids, error))
                        break
                else:
                    split_count, queued_count = split_count + counts[0], queued_count + counts[1]
                    if count == limit:
                        break
        for message_ids, refusal in failures:
            if not message_ids or (transactions.is_of_server(refusal) and not split_count):
                raise refusal
            ending.set_unsplittable_aside(message_ids[0], refusal)
        return split_count, queued_count

    def _split(
        self, limits: Mapping[int, int], capacity: Capacity | None, behind_ids: Collection[int]
    ) -> tuple[int, int]:
        of_a_message = {biz_id: self._means[biz_id].deliveries for biz_id in limits}
        expected_count = sum(count * of_a_message[biz_id] for biz_id, count in limits.items())
        max_count = self._max_deliveries + max(of_a_message.values())  # see `_choose`
        id_count = max(_MIN_IDS, math.ceil(min(max_count, expected_count)))
        began, began_at = time.monotonic(), spans.now()
        while True:
            try:
                plan = transactions.retrying(
                    partial(self.split_once, limits, id_count, capacity, behind_ids)
                )
                break
            except _NotEnoughIds as error:
                id_count = error.deliveries
        failpoint("maker_split_after_commit")
        self._expect(pk for part in plan.slices for pk in part.subscription_ids - part.direct)
        # Subscription → message → delivery.
        delivery_ids: dict[int, dict[int, int]] = defaultdict(dict)
        for delivery_id, message_id, subscription_id in plan.rows:
            delivery_ids[subscription_id][message_id] = delivery_id
        to_put, due = [], plan.lease_until - settings.NOTIFY_LEASE_SECONDS
        for subscription, messages in orders.in_turns(plan.orders, lambda order: order[0].biz_id):
            # Fewer than planned, when a delivery was there before.
            own_ids = delivery_ids[subscription.id]
            items = [(own_ids[m.id], 1, m, due) for m in messages if m.id in own_ids]
            is_probe = capacity is not None and capacity.is_probe_requested(subscription)
            claim = plan.token, plan.lease_until
            to_put.append(enqueue.ClaimedDeliveries(subscription, *claim, items, is_probe))
        enqueue.put(to_put)
        listened = self._subscriptions.listened()
        if listened and any(not listened.keys().isdisjoint(of) for of in plan.recipients):
            signals.LISTENERS.send()
        if plan.deliveries >= MIN_DELIVERIES / 2:  # the time of a small split is mostly fixed
            deliveries_in_time = int(plan.deliveries * SPLIT_SECONDS / (time.monotonic() - began))
            self._max_deliveries = max(MIN_DELIVERIES, min(MAX_DELIVERIES, deliveries_in_time))
        if began_at:
            # Record the split of the messages that are traced.
            contexts = spans.contexts({message.id: message.trace for message in plan.messages})
            steps = [
                spans.Step(context, {"message_id": str(pk)}) for pk, context in contexts.items()
            ]
            spans.record_steps("notify split", began_at, steps, len(plan.messages))
        return len(plan.messages), len(plan.rows)

    def split_once(
        self,
        limits: Mapping[int, int],
        id_count: int,
        capacity: Capacity | None,
        behind_ids: Collection[int],
    ) -> _Plan:
        """Split in one transaction. Each retry reserves new ids: if only the answer to a COMMIT was
        lost, the first ids are in the table, and the retry takes other messages."""
        self._locked_ids = ()
        # Ids are reserved outside of the transaction: a rollback must not undo the reservation.
        block = ids.reserve(id_count)
        plan = _Plan()
        try:
            with transaction.atomic(durable=True):
                messages = enqueue.lock_accepted(limits, payloads=capacity is not None)
                self._locked_ids = [message.id for message in messages]
                self._choose(plan, messages, block.count)
                if capacity:
                    self._plan_orders(plan, capacity, behind_ids)
                _write(plan, block, self._event_types)
                failpoint("maker_split_before_commit")
        except BaseException:
            if capacity:  # no order will be put, so the capacity is free again
                for subscription, _ in plan.orders:
                    capacity.take(subscription, -1)
            raise
        return plan

    def _choose(self, plan: _Plan, messages: Sequence[Message], reserved_ids: int) -> None:
        """Plan as many messages as there are ids for, in turns of systems. The other messages stay
        unsplit."""
        if not messages:
            return
        max_deliveries = min(reserved_ids, self._max_deliveries)
        # Refresh after the messages are locked: see `Recipients`.
        recipients = self._recipients
        recipients.refresh({message.biz_id for message in messages})
        messages = recipients.apply_filters(messages)
        self._measure(messages)
        turns = orders.in_turns(messages, lambda m: m.biz_id, lambda m: len(recipients.by(m)))
        turns = _with_one_large(turns, lambda m: 2 * len(recipients.by(m)) > max_deliveries)
        # The large message is not counted, so that small messages of other systems are split too.
        large_deliveries = 0
        for part in fanout.cut(turns[:BATCH], recipients, orders.MAX_ITEMS, max_deliveries):
            is_large = len(part.messages) == 1 and 2 * part.deliveries > max_deliveries
            deliveries = plan.deliveries - large_deliveries + part.deliveries
            if is_large and not large_deliveries:
                large_deliveries = part.deliveries
            elif plan.slices and deliveries > max_deliveries:
                break
            plan.slices.append(part)
        plan.excluded = {
            message.id: recipients.excluded[message.id]
            for message in (plan.messages if recipients.excluded else ())
            if message.id in recipients.excluded
        }
        if plan.deliveries > reserved_ids:  # one message for very many subscriptions
            raise _NotEnoughIds(plan.deliveries)

    def _measure(self, messages: Sequence[Message]) -> None:
        by_system: dict[int, list[Message]] = defaultdict(list)
        for message in messages:
            by_system[message.biz_id].append(message)
        for biz_id, part in by_system.items():
            deliveries = sum(len(self._recipients.by(message)) for message in part)
            size = sum(message.size for message in part)
            self._means[biz_id] = _Mean(
                max(1.0, deliveries / len(part)), max(1.0, size / len(part))
            )

    def _plan_orders(self, plan: _Plan, capacity: Capacity, behind_ids: Collection[int]) -> None:
        """Plan orders for subscriptions whose slices fit whole. A subscription whose slice does not
        fit gets no further order in this turn, so that its deliveries stay in order."""
        excluded_ids = set(behind_ids)
        free_orders: dict[int, int] = defaultdict(lambda: _MAX_ORDERS)
        for part in plan.slices:
            for subscription_id, messages in part.by_subscription().items():
                if subscription_id in excluded_ids:
                    continue
                subscription = self._subscriptions.get(subscription_id)
                # The dispatcher sets deliveries aside that are not readable.
                is_direct = all(message.is_readable for message in messages)
                if not is_direct or (subscription and free_orders[subscription.biz_id] <= 0):
                    subscription = None
                message_groups = _cut(subscription, messages, capacity) if subscription else None
                if subscription is None or message_groups is None:
                    excluded_ids.add(subscription_id)
                else:
                    part.direct.add(subscription_id)
                    plan.orders += [(subscription, order) for order in message_groups]
                    free_orders[subscription.biz_id] -= len(message_groups)


def _with_one_large(
    messages: Sequence[Message], is_large: Callable[[Message], bool]
) -> list[Message]:
    """The messages with at most one large message, whose recipients fill a transaction. A system's
    messages from a second large message on are left out, so that they keep their order and other
    systems do not wait."""
    chosen: list[Message] = []
    passed_ids = set[int]()
    has_large = False
    for message in messages:
        if message.biz_id in passed_ids:
            continue
        if is_large(message):
            if has_large:
                passed_ids.add(message.biz_id)
                continue
            has_large = True
        chosen.append(message)
    return chosen


def _cut(
    subscription: Subscription, messages: Sequence[Message], capacity: Capacity
) -> list[Sequence[Message]] | None:
    """Cut the messages into orders; None if the capacity is too small for all messages."""
    message_groups: list[Sequence[Message]] = []
    while messages:
        offer = capacity.offer(subscription) if subscription.is_sendable else None
        if offer is None or not capacity.admits(offer, messages[0].size):
            capacity.take(subscription, -len(message_groups))
            return None
        count = orders.fitting([message.size for message in messages], offer.items, offer.bytes)
        message_groups.append(messages[:count])
        messages = messages[count:]
        capacity.take(subscription)
    return message_groups


def _write(plan: _Plan, block: ids.Block, event_types: counters.CatalogueSubjects) -> None:
    """Insert the deliveries, mark the messages, read back which deliveries are claimed."""
    base = block.base
    for part in plan.slices:
        fanout.insert(part, base, block.node, plan.token, settings.NOTIFY_LEASE_SECONDS)
        base += part.deliveries
        fanout.mark_split(part)
    if plan.orders:
        plan.rows = fanout.read_inserted(block.base, base - block.base, plan.token)
    now = None
    if plan.rows:
        until, now = ReceiveMsg.objects.values_list("next_at", Now()).get(id=plan.rows[0][0])
        plan.lease_until = until.timestamp()
    if plan.slices:
        # Last, because other makers wait for this row until the commit.
        kinds = [(message.biz_id, message.event_type) for message in plan.messages]
        filtered_counts = Counter(
            counters.Key(message.biz_id, subscription, counters.FILTERED)
            for message in (plan.messages if plan.excluded else ())
            for subscription in plan.excluded.get(message.id, ())
        )
        counters.count_accepted(kinds, event_types, now or sql.now(), filtered_counts)
