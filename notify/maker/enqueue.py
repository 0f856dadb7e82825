"""Puts claimed copies on the queues as work orders, several in one round trip to Redis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from django.conf import settings

from msgplatform.core.failpoints import failpoint
from msgplatform.core.queues import jobs
from notify import bells, orders
from notify.directory import Subscription
from notify.maker import payloads
from notify.maker.payloads import Message

# What one round trip carries; an order may be larger by its last item.
STEP_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class Claimed:
    """An order that is not put yet: (copy id, attempt, message) of each item."""

    subscription: Subscription
    claim: str
    lease_until: float
    items: list[tuple[int, int, Message]]

    @property
    def size(self) -> int:
        return sum(message.size for _, _, message in self.items)


def put(claimed: Iterable[Claimed]) -> None:
    """Put claimed orders on their queues, several in a round trip."""
    claimed = [order for order in claimed if order.items]
    if claimed:
        failpoint("maker_after_commit_before_enqueue")
    for group in _by_bytes(claimed):
        text = payloads.texts({m.id: m for order in group for _, _, m in order.items}.values())
        made = [(order.subscription.queue, _order(order, text)) for order in group]
        jobs.put_all(
            [(queue, order) for queue, order in made if order.items],
            # An order outlives its lease a little: a late one is given back, not lost silently.
            ttl=2 * settings.NOTIFY_LEASE_SECONDS,
        )
        bells.SENDER.ring()


def _order(order: Claimed, text: dict[int, str]) -> orders.Order:
    items = [
        orders.Item(copy_id, message.id, attempt, text[message.id])
        for copy_id, attempt, message in order.items
        if message.id in text  # else it was deleted just now: due again after the lease
    ]
    return orders.Order(order.subscription.id, order.claim, order.lease_until, items)


def _by_bytes(claimed: Sequence[Claimed]) -> Iterator[list[Claimed]]:
    group: list[Claimed] = []
    filled = 0
    for order in claimed:
        if group and filled + order.size > STEP_BYTES:
            yield group
            group, filled = [], 0
        group.append(order)
        filled += order.size
    if group:
        yield group
