"""Puts claimed deliveries on the queues as work orders, several in one round trip to Redis."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.conf import settings

from msgplatform.core.failpoints import failpoint
from msgplatform.core.queues import jobs
from notify import orders, presence, signals
from notify.directory import Subscription
from notify.maker import payloads, poison
from notify.maker.payloads import Message

# What one round trip carries; an order may be larger by its last item.
STEP_BYTES = 4 * 1024 * 1024
STEP_ORDERS = 100


@dataclass(slots=True)
class Claimed:
    """An order that is not on its queue yet: (delivery id, attempt, message, `Item.due`) of each
    item."""

    subscription: Subscription
    claim: str
    lease_until: float
    items: list[tuple[int, int, Message, float]]
    is_probe: bool = False  # see Order.is_probe


def put(claimed: Iterable[Claimed]) -> None:
    """Put claimed orders on their queues, several in a round trip."""
    waiting = [order for order in claimed if order.items]
    if waiting:
        # Who dies from here on leaves claimed deliveries: due again when their lease is over.
        failpoint("maker_after_commit_before_enqueue")
    sizes = [sum(message.size for _, _, message, _ in order.items) for order in waiting]
    while waiting:
        count = orders.fitting(sizes, STEP_ORDERS, STEP_BYTES)
        group, waiting, sizes = waiting[:count], waiting[count:], sizes[count:]
        messages = {m.id: m for planned in group for _, _, m, _ in planned.items}
        text = payloads.texts(messages.values())
        made = []
        for planned in group:
            unreadable = [pk for pk, _, message, _ in planned.items if not message.is_readable]
            poison.set_aside(
                planned.subscription.id, unreadable, poison.UNREADABLE, claim=planned.claim
            )
            items = [
                orders.Item(
                    delivery_id,
                    message.id,
                    attempt,
                    text[message.id],
                    message.event_type,
                    message.key,
                    due,
                )
                for delivery_id, attempt, message, due in planned.items
                if message.id in text  # else it was deleted just now: due again after the lease
            ]
            order = orders.Order(
                planned.subscription.id, planned.claim, planned.lease_until, items, planned.is_probe
            )
            if items:
                made.append((planned.subscription.queue, order))
        # An order outlives its lease a little: a late one is given back, not lost silently.
        jobs.put_all(made, ttl=2 * settings.NOTIFY_LEASE_SECONDS)
        signals.SENDER.send()
        presence.withdraw_probes(p.subscription.id for p in group if p.is_probe)
