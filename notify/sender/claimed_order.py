"""An order in flight in a sender, from its claim to its last result."""

from __future__ import annotations

from dataclasses import dataclass

from msgplatform.core.queues import jobs
from notify import presence
from notify.orders import Order


@dataclass(eq=False, slots=True)
class ClaimedOrder:
    """An order in flight. `item_size`: bytes of memory that an item takes.

    `before`: the report of the sender that had this subscription's queue before, if any.
    """

    claimed: jobs.Claimed
    order: Order
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
