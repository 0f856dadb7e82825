"""An order in flight in a sender, from its claim to its last result."""

from __future__ import annotations

from dataclasses import dataclass

from msgplatform.core.queues import jobs
from notify import presence
from notify.orders import Order


@dataclass(eq=False, slots=True)
class ClaimedOrder:
    """An order in flight; `item_size` is the memory that each of its items takes, in bytes.

    `before` is the report of the sender that had this subscription's queue until now, if any.
    """

    claimed: jobs.Claimed
    order: Order
    # Counts down to the moment when the order can be forgotten. Only the result writer's thread
    # changes it; the claiming thread reads it, and may see it late.
    open_items: int
    item_size: int
    # Counts down to the moment when all of it is in flight. Only the sending thread changes it.
    unsent_items: int
    # Set by the claiming thread when another sender owns the queue, or had this order before:
    # unsent items go back.
    is_lost: bool = False
    before: presence.LaneState | None = None
