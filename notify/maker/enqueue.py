"""Puts claimed deliveries on the queues as work orders, several in one round trip to Redis."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from django.conf import settings
from django.db.models.functions import Now

from msgplatform.core.connections import RedisError, refusal
from msgplatform.core.data import claims, transactions
from msgplatform.core.data.chunks import chunks
from msgplatform.core.failpoints import failpoint
from msgplatform.core.queues import jobs
from notify import orders, presence, signals
from notify.directory import Subscription
from notify.maker import ending, payloads
from notify.maker.payloads import Message
from notify.models import ReceiveMsg

# Bounds of one round trip. The last item of an order may exceed the bytes.
STEP_BYTES = 4 * 1024 * 1024
STEP_ORDERS = 100


@dataclass(slots=True)
class ClaimedDeliveries:
    """An order before it is queued. Its items are (delivery id, attempt, message, `Item.due`)."""

    subscription: Subscription
    claim: str
    lease_until: float
    items: list[tuple[int, int, Message, float]]
    is_probe: bool = False  # see Order.is_probe


def put(orders_to_put: Iterable[ClaimedDeliveries]) -> None:
    """Put claimed orders on their queues, several in a round trip."""
    remaining = [order for order in orders_to_put if order.items]
    if remaining:
        # A maker that dies from here on leaves claimed deliveries: due again after their lease.
        failpoint("maker_after_commit_before_enqueue")
    sizes = [sum(message.size for _, _, message, _ in order.items) for order in remaining]
    while remaining:
        count = orders.fitting(sizes, STEP_ORDERS, STEP_BYTES)
        group, remaining, sizes = remaining[:count], remaining[count:], sizes[count:]
        messages = {m.id: m for entry in group for _, _, m, _ in entry.items}
        text = payloads.read_texts(messages.values())
        queue_orders = []
        for entry in group:
            unreadable_ids = [pk for pk, _, message, _ in entry.items if not message.is_readable]
            subscription = entry.subscription
            ending.set_aside(subscription.id, unreadable_ids, ending.UNREADABLE, entry.claim)
            items = [
                orders.Item(pk, m.id, attempt, text[m.id], m.event_type, m.key, due, m.trace)
                for pk, attempt, m, due in entry.items
                if m.id in text  # else the message was deleted: due again after the lease
            ]
            order = orders.Order(
                subscription.id, entry.claim, entry.lease_until, items, entry.is_probe
            )
            if items:
                queue_orders.append((subscription.queue, order))
        try:
            # An order lives longer than its lease, so that a late order is given back, not lost.
            jobs.put_all(queue_orders, ttl=2 * settings.NOTIFY_LEASE_SECONDS)
        except RedisError as error:
            if refusal(error):
                _release([*group, *remaining])
            raise
        signals.SENDER.send()
        presence.withdraw_probes(p.subscription.id for p in group if p.is_probe)


def _release(unqueued: Iterable[ClaimedDeliveries]) -> None:
    """Make deliveries due again whose orders Redis has refused. Otherwise they would wait for
    their lease, minutes after Redis accepts writes again."""
    values = {"status": ReceiveMsg.Status.PENDING, "claimed_by": "", "next_at": Now()}
    for order in unqueued:
        for ids in chunks([pk for pk, *_ in order.items], claims.CHUNK):
            rows = ReceiveMsg.objects.filter(
                id__in=ids, status=ReceiveMsg.Status.QUEUED, claimed_by=order.claim
            )
            transactions.retrying(partial(claims.update_by_key, rows, values))
