"""The sender's claiming thread: takes orders from Redis so that the sending thread never waits."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from django.conf import settings
from django.db import close_old_connections

from msgplatform.core import logging, queues
from msgplatform.core.backoff import Backoff
from msgplatform.core.daemon import AWAY
from notify.orders import Order
from notify.subscriptions import Subscriptions

log = logging.get(__name__)

# Orders in hand beyond the first of each subscription (an order is at most 1 MiB). The first does
# not count: subscribers that hang must not keep the others from getting theirs.
MAX_SECOND_ORDERS = 64
# Orders of one subscription in hand: one being sent, one ready behind it.
MAX_PER_SUBSCRIPTION = 2
# A queue belongs to one sender at a time; a killed owner's queue is free after this long.
OWNERSHIP_SECONDS = 10.0


@dataclass(eq=False, slots=True)
class ClaimedOrder:
    """An order in hand; `open_items` counts down to the moment when it can be forgotten."""

    claimed: queues.Claimed
    order: Order
    open_items: int


class OrderFeed:
    """Claims orders of subscriptions that this process owns and that have room."""

    def __init__(self, owner: str, subscriptions: Subscriptions, wake: Callable[[], None]) -> None:
        self.owner = owner
        self.subscriptions = subscriptions
        self._wake = wake
        self._inbox: deque[ClaimedOrder] = deque()
        self._held: dict[str, list[ClaimedOrder]] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="order-feed", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def take(self) -> list[ClaimedOrder]:
        """What was claimed since the last call; called by the sending thread."""
        taken: list[ClaimedOrder] = []
        while self._inbox:
            taken.append(self._inbox.popleft())
        return taken

    def disown(self) -> None:
        """Let another sender have the queues at once instead of after the ownership's end."""
        try:
            queues.disown(list(self._held), self.owner)
        except AWAY:
            return

    # -- the thread ------------------------------------------------------------------------------
    def _run(self) -> None:
        idle = Backoff(first=0.01, factor=1.3, cap=0.25)
        trouble = Backoff(first=0.2, factor=2.0, cap=5.0)
        while not self._stopping.is_set():
            try:
                close_old_connections()
                self.subscriptions.refresh()
                claimed = self._claim_round()
            except AWAY as error:
                log.warning("feed_waiting", why=str(error)[:200])
                self._stopping.wait(trouble.next())
                continue
            except Exception:
                log.exception("feed_failed")
                self._stopping.wait(trouble.next())
                continue
            trouble.reset()
            if claimed:
                idle.reset()
                self._wake()
            else:
                self._stopping.wait(idle.next())
        close_old_connections()

    def _claim_round(self) -> int:
        self._forget_finished()
        queues.renew(list(self._held), self.owner, OWNERSHIP_SECONDS)
        second = sum(len(held) - 1 for held in self._held.values())
        wanted = [
            s.queue
            for s in self.subscriptions.all()
            if s.sendable and self._has_room(s.queue, MAX_SECOND_ORDERS - second)
        ]
        ready = queues.own(wanted, self.owner, OWNERSHIP_SECONDS)
        return sum(self._claim_one(name) for name in ready)

    def _has_room(self, name: str, second_orders: int) -> bool:
        held = len(self._held.get(name, ()))
        return held == 0 or (held < MAX_PER_SUBSCRIPTION and second_orders > 0)

    def _forget_finished(self) -> None:
        for name, held in list(self._held.items()):
            held[:] = [order for order in held if order.open_items > 0]
            if not held:
                del self._held[name]

    def _claim_one(self, name: str) -> int:
        claimed = queues.claim(name, seconds=2.0 * settings.NOTIFY_LEASE_SECONDS)
        if claimed is None:
            return 0
        try:
            order = msgspec.convert(claimed.data, Order)
        except msgspec.ValidationError:
            # Not ours to send; its rows come back when their lease is over.
            log.exception("order_unreadable", queue=name, job=claimed.id)
            queues.done([claimed])
            return 0
        held = ClaimedOrder(claimed, order, len(order.items))
        self._held.setdefault(name, []).append(held)
        self._inbox.append(held)
        return 1
