"""The memory for orders in flight: who takes how much of it, and whose orders still fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from sys import getsizeof

from notify import orders
from notify.orders import Order
from notify.sender.claimed_order import ClaimedOrder

# All orders in flight, in bytes of memory and in messages: a thousand subscriptions with full
# orders would be a gigabyte. Beyond it queues wait for their turn, the one that waits longest comes
# first.
MAX_BYTES = 48 * 1024 * 1024
MAX_ITEMS = 40_000
# The part of these that is open to each system, however much of it the system uses. The rest is for
# systems that use less than an equal part of it.
_OPEN_TO_ALL = 3 / 4
# Memory that a message takes beside the text of its body.
_ITEM_BYTES = 256
# The weight of the latest order in the number of messages that one is expected to have.
_SMOOTHING = 0.1


class Memory:
    """`in_flight` are the orders by queue; it belongs to the claiming thread, as this does."""

    def __init__(self, in_flight: Mapping[str, Sequence[ClaimedOrder]]) -> None:
        self._in_flight = in_flight
        self._items_of_order = float(orders.MAX_ITEMS)  # an average of the latest

    def open_to(self, queues: Sequence[str]) -> tuple[list[str], int]:
        """The queues whose systems may have more, and how many of their orders fit, at least one;
        none when the memory is full."""
        usage, max_usage, open_queues = self._usage(), _OPEN_TO_ALL, list(queues)
        if sum(usage.values()) >= _OPEN_TO_ALL:
            systems = usage.keys() | map(orders.system_of, queues)
            part, max_usage = (1 - _OPEN_TO_ALL) / len(systems), 1.0
            open_queues = [q for q in queues if usage.get(orders.system_of(q), 0.0) < part]
        room = max_usage - sum(usage.values())
        if room <= 0:
            return [], 0
        # If each were taken for a full one, nearly full memory would be filled by a script for
        # each order. `jobs.CLAIM_BYTES` bounds a script if they are larger than expected.
        return open_queues, max(1, int(room * MAX_ITEMS / self._items_of_order))

    def item_size(self, order: Order) -> int:
        """Bytes that each message of a new order takes, which counts for what is expected of the
        next."""
        count = max(1, len(order.items))
        self._items_of_order += _SMOOTHING * (count - self._items_of_order)
        # Text that is not ASCII takes two or four bytes a character.
        return _ITEM_BYTES + sum(getsizeof(item.body) for item in order.items) // count

    def _usage(self) -> dict[int, float]:
        """The part of the memory that the orders in flight of each system take: of its bytes or of
        its messages, whichever is more."""
        sizes, items = Counter[int](), Counter[int]()
        for queue, orders_in_flight in self._in_flight.items():
            system = orders.system_of(queue)
            sizes[system] += sum(order.open_items * order.item_size for order in orders_in_flight)
            items[system] += sum(order.open_items for order in orders_in_flight)
        if sum(sizes.values()) * MAX_ITEMS > sum(items.values()) * MAX_BYTES:
            return {system: size / MAX_BYTES for system, size in sizes.items()}
        return {system: count / MAX_ITEMS for system, count in items.items()}
