"""The capacity of each subscription's queue: the orders that will be sent before their lease ends.

A turn reads once: the depths of all queues, and the reports of the senders (`presence.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

import msgspec
from django.conf import settings

from msgplatform.core import logging, outbound
from msgplatform.core.connections import RedisError
from msgplatform.core.queues import jobs
from notify import orders, presence
from notify.directory import Subscription

log = logging.get(__name__)

# Orders that wait or are in flight: enough to keep a sender busy, few enough that memory stays
# bounded and a pause takes effect soon.
ORDERS_PER_SUBSCRIPTION = 4
# Orders of all queues. A subscription's first order may go beyond it, but is small; a system with
# less than an equal part may too. So the queues of dead subscribers neither keep a healthy queue
# empty nor fill the memory.
ORDERS_IN_TOTAL = 256
BEYOND_TOTAL_BYTES = 64 * 1024
# Bytes of larger messages that a turn puts beyond the total, so that a large message is not copied
# into Redis for thousands of subscriptions at once.
_LARGE_BYTES = 16 * 1024 * 1024
# Nothing is queued while MAX_RESULT_BATCHES of results wait for the marker, or fewer batches are
# MAX_RESULT_SECONDS old: if Redis were lost, the deliveries of these results would be sent again.
MAX_RESULT_BATCHES, _SOME_RESULT_BATCHES, MAX_RESULT_SECONDS = 300, 20, 10.0
# The shares of a lease in which all waiting orders, and one order, are sent at the measured rate.
# The rest of the lease is for the marker, and for a consumer that becomes slower.
_ALL_SHARE, _ORDER_SHARE = 1 / 4, 1 / 16


class Offer(msgspec.Struct, frozen=True):
    """Bounds of the next order: items, and bytes of the items after the first."""

    items: int
    bytes: int


class Capacity:
    """Counts the orders that may still be queued in this turn. `live`: the senders' reports.
    `probes`: subscriptions whose next probe a person asked for."""

    def __init__(
        self,
        depths: Mapping[str, int],
        live: Mapping[int, presence.LaneState],
        probes: Collection[int] = frozenset(),
        is_marker_behind: bool = False,
    ) -> None:
        self.live = live
        self._probes = probes
        self._is_marker_behind = is_marker_behind
        self._depths = dict(depths)
        self._total = ORDERS_IN_TOTAL - sum(depths.values())
        self._of_systems = Counter[int]()
        for queue, depth in self._depths.items():
            self._of_systems[orders.system_of(queue)] += depth
        self._lease = float(settings.NOTIFY_LEASE_SECONDS)
        self._large_bytes = _LARGE_BYTES

    @classmethod
    def read(cls, queues: Collection[str]) -> Capacity:
        """The capacity of these queues at this moment. Raises RedisError when the depths cannot be
        read."""
        queues = jobs.with_orders(queues)
        lengths = jobs.lengths([*queues, orders.MARKER_QUEUE])
        # The batches of results that wait for the marker.
        batches = sum(lengths.pop(orders.MARKER_QUEUE))
        is_marker_behind = batches >= MAX_RESULT_BATCHES or (
            batches >= _SOME_RESULT_BATCHES
            and jobs.oldest_seconds(orders.MARKER_QUEUE) >= MAX_RESULT_SECONDS
        )
        depths = {
            queue: waiting + min(claimed, orders.MAX_UNSENT)
            for queue, (waiting, claimed) in lengths.items()
        }
        probes: Collection[int] = frozenset()
        try:
            live = presence.read()
            if any(state.is_open for state in live.values()):
                probes = presence.requested_probes()
        except RedisError as error:
            # Without measured rates and breakers an order is as long as the other limits allow. The
            # lease still keeps a late order from being sent.
            log.warning("senders_not_known", why=str(error)[:200])
            live = {}
        return cls(depths, live, probes, is_marker_behind)

    @property
    def is_closed(self) -> bool:
        """True if no subscription gets an order now, not even a probe."""
        return self._is_marker_behind or outbound.is_off()

    def offer(self, subscription: Subscription) -> Offer | None:
        """The bounds of the subscription's next order; None when it gets no order now."""
        if self.is_closed:
            return None
        depth = self._depths.get(subscription.queue, 0)
        state = self.live.get(subscription.id)
        if state and state.is_open:  # one probe, and no further order
            is_due = depth == 0 and (state.retry_in <= 0 or self.is_probe_requested(subscription))
            return Offer(1, BEYOND_TOTAL_BYTES) if is_due else None
        items, limit = orders.MAX_ITEMS, ORDERS_PER_SUBSCRIPTION
        # Messages a second: the lower of the consumer's rate limit and the measured rate.
        rates = (subscription.rate_limit, state.per_second if state else 0.0)
        rate = min((rate for rate in rates if rate > 0), default=0.0)
        if rate:
            in_all = max(1.0, rate * self._lease * _ALL_SHARE)
            items = max(1, min(items, int(rate * self._lease * _ORDER_SHARE)))
            limit = min(limit, int(in_all) // items)
            if state and state.waiting >= in_all:  # the consumer was faster when these were queued
                return None
        if depth >= limit:
            return None
        if self._total > 0 or self._is_below_its_part(subscription.biz_id):
            return Offer(items, orders.MAX_BYTES)
        return Offer(items, BEYOND_TOTAL_BYTES) if depth == 0 else None

    def admits(self, offer: Offer, size: int) -> bool:
        """True if an order by this offer may begin with an item of `size` bytes; counts the size
        of large items."""
        if size <= offer.bytes or offer.bytes > BEYOND_TOTAL_BYTES:
            return True
        if self._large_bytes <= 0:
            return False
        self._large_bytes -= size
        return True

    def _is_below_its_part(self, system: int) -> bool:
        systems = sum(1 for depth in self._of_systems.values() if depth)
        return self._of_systems[system] < ORDERS_IN_TOTAL // max(2, systems + 1)

    def is_probe_requested(self, subscription: Subscription) -> bool:
        """True if the subscription's next order is a probe that a person asked for."""
        return subscription.id in self._probes

    def take(self, subscription: Subscription, count: int = 1) -> None:
        """Count `count` orders for the subscription's queue; a negative number takes them back."""
        self._depths[subscription.queue] = self._depths.get(subscription.queue, 0) + count
        self._of_systems[subscription.biz_id] += count
        self._total -= count
