"""The orders in flight in a sender, each from its claim to its last result, and the memory that
they take: the usage of each system, and the queues whose orders fit. Strays: orders of dead
senders."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from sys import getsizeof

import msgspec

from msgplatform.core import logging
from msgplatform.core.queues import jobs, owners
from notify import orders, presence

log = logging.get(__name__)


class ClaimedOrder(msgspec.Struct, eq=False):
    """An order in flight. `item_size`: bytes of memory that an item takes.

    `before`: the report of the sender that had this subscription's queue before, if any.
    """

    claimed: jobs.Claimed
    order: orders.Order
    # Items without a stored result; at 0 the order can be forgotten. Only the result writer's
    # thread changes the number. The claiming thread may see a change late.
    open_items: int
    item_size: int
    # Items that are not in flight yet. Only the sending thread changes the number.
    unsent_items: int
    # True if unsent items go back: another sender owns the queue, or had this order before. Set by
    # the claiming thread.
    is_lost: bool = False
    before: presence.LaneState | None = None


# Bounds of all orders in flight: a thousand subscriptions with full orders would be a gigabyte.
# Beyond the bounds queues wait for their turn, and the queue that has waited longest comes first.
MAX_BYTES = 48 * 1024 * 1024
MAX_ITEMS = 40_000
# The part of the memory that is open to each system, however much the system uses. The rest is for
# systems that use less than an equal part of the rest.
_OPEN_TO_ALL = 3 / 4
# Memory that a message takes beside the text of its body.
_ITEM_BYTES = 256
# The weight of the latest order in the expected number of messages of an order.
_SMOOTHING = 0.1


class Memory:
    """`in_flight`: orders by queue. It belongs to the claiming thread, as this object does."""

    def __init__(self, in_flight: Mapping[str, Sequence[ClaimedOrder]]) -> None:
        self._in_flight = in_flight
        self._items_of_order = float(orders.MAX_ITEMS)  # the average of the latest orders

    def open_to(self, queues: Sequence[str]) -> tuple[list[str], int]:
        """The queues whose systems may have more, and the number of orders that fit, at least one;
        no queues when the memory is full."""
        usage, max_usage, open_queues = self._usage(), _OPEN_TO_ALL, list(queues)
        if sum(usage.values()) >= _OPEN_TO_ALL:
            systems = usage.keys() | map(orders.system_of, queues)
            part, max_usage = (1 - _OPEN_TO_ALL) / len(systems), 1.0
            open_queues = [q for q in queues if usage.get(orders.system_of(q), 0.0) < part]
        room = max_usage - sum(usage.values())
        if room <= 0:
            return [], 0
        # The expected size counts, because with full orders a nearly full memory would need a
        # script for each order. `jobs.CLAIM_BYTES` bounds a script when orders are larger.
        return open_queues, max(1, int(room * MAX_ITEMS / self._items_of_order))

    def item_size(self, order: orders.Order) -> int:
        """Bytes that each message of a new order takes. The order's length changes the expected
        length of the next."""
        count = max(1, len(order.items))
        self._items_of_order += _SMOOTHING * (count - self._items_of_order)
        # `getsizeof`, because text that is not ASCII takes two or four bytes a character.
        return _ITEM_BYTES + sum(getsizeof(item.body) for item in order.items) // count

    def _usage(self) -> dict[int, float]:
        """System → part of the memory that its orders in flight take, in bytes or in messages,
        whichever total is nearer to its bound."""
        sizes, items = Counter[int](), Counter[int]()
        for queue, orders_in_flight in self._in_flight.items():
            system = orders.system_of(queue)
            sizes[system] += sum(order.open_items * order.item_size for order in orders_in_flight)
            items[system] += sum(order.open_items for order in orders_in_flight)
        if sum(sizes.values()) * MAX_ITEMS > sum(items.values()) * MAX_BYTES:
            return {system: size / MAX_BYTES for system, size in sizes.items()}
        return {system: count / MAX_ITEMS for system, count in items.items()}


# -- orders of dead senders ------------------------------------------------------------------------
# A sender that has lost Redis needs some seconds to come back: two connects, and a pause.
_MIN_PATIENCE_SECONDS = 7.0
# Between two looks that are further apart a holder may have renewed its ownership.
_LOOK_SECONDS = 5.0


class Strays:
    """The strays that this process sees, and the time since which it sees each. They go back into
    their queues, and are given back unsent.

    A killed sender's queue has no owner, or a new owner, after OWNERSHIP_SECONDS. Its orders wait
    until the last request that the sender can have begun is over. Stray messages are not sent,
    because results of some may wait for the marker. The next sender gives all messages back
    *unsent*, behind these results; the marker applies this to messages that still carry the claim,
    and the maker queues them again.

    A sender that only stood still begins no request some seconds after its last renewal
    (`OrderClaimer.may_begin`), and learns with the next renewal which orders it has lost.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._seen_at: dict[tuple[str, str], float] = {}  # by queue and job id, monotonic
        self._looked_at = 0.0

    def take_back(self, timeouts: Mapping[str, float], in_hand: Iterable[jobs.Claimed]) -> set[str]:
        """Put the strays of these queues back, unless results of them may wait for the marker.
        Returns the queues that got strays back. `timeouts`: queue → seconds of a request."""
        now, own_ids = time.monotonic(), {claimed.id for claimed in in_hand}
        if now - self._looked_at > _LOOK_SECONDS:
            self._seen_at = {}
        self._looked_at = now
        strays = owners.strays(list(timeouts), self._owner, own_ids)
        self._seen_at = {stray: self._seen_at.get(stray, now) for stray in strays}
        lasting = [
            (queue, job_id)
            for (queue, job_id), seen_at in self._seen_at.items()
            if now - seen_at >= patience(timeouts[queue])
        ]
        if not lasting or orders.are_results_late():
            return set()
        taken_back = owners.take_back(lasting, self._owner)
        if taken_back:
            log.warning("orders_of_a_dead_sender_taken_back", orders=len(taken_back))
        return {queue for queue, _job_id in taken_back}


def patience(timeout: float) -> float:
    """Seconds from the first look at a stray until it goes back. The holder begins no request after
    its ownership; its last request must have ended, so that a message has one request at a time."""
    return max(_MIN_PATIENCE_SECONDS, timeout)
