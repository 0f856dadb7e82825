"""A lane: a thread with an adapter of its own, which works off one order after the other."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from django.db import connections

from crmsync.adapters.base import CRMAdapter
from crmsync.adapters.outcomes import Auth, Ok
from crmsync.directory import Crm
from crmsync.handler import marks, pause
from crmsync.handler.answers import Delivered
from crmsync.handler.delivery import Delivery
from crmsync.handler.gate import Gate
from crmsync.handler.hand import Hand
from crmsync.queues import MainQueue, RetryQueue
from msgplatform.core import logging
from msgplatform.core.daemons.away import AWAY
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.failpoints import failpoint
from msgplatform.core.queues import jobs
from msgplatform.core.rates.backoff import Backoff

log = logging.get(__name__)

# How often a lane that may not send looks whether it may.
_LOOK_SECONDS = 0.1

Count = Callable[[int, int], None]  # records that are done, and those of them that failed


class Lane:
    """Of `crm`; takes orders as long as `owned()`. `stopping` lets it finish the one in hand."""

    def __init__(
        self,
        crm: Crm,
        gate: Gate,
        owned: Callable[[], bool],
        stopping: threading.Event,
        count: Count,
    ) -> None:
        self._crm, self._gate, self._owned = crm, gate, owned
        self._stopping, self._count = stopping, count
        self._queues = deque([MainQueue(crm.name), RetryQueue(crm.name)])
        self._adapter: CRMAdapter | None = None
        self._unmarked: Delivered | None = None
        self._idle = Backoff(first=0.01, factor=1.3, cap=1.0)  # it is woken
        self.hand: Hand | None = None
        self._loop = ThreadLoop(f"crm-{crm.name}", self._turn, last=self._close)
        self._closed = threading.Event()

    def start(self) -> None:
        self._loop.start()

    def wake(self) -> None:
        """There are orders: look at once."""
        self._loop.wake()

    def stop(self) -> None:
        """Ask it to end after the order in hand."""
        self._loop.stop()

    @property
    def has_ended(self) -> bool:
        return self._closed.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait until it has ended; whether it has."""
        return self._closed.wait(seconds)

    def _turn(self) -> float:
        """Seconds until the next."""
        if self.hand is None:
            if self._stopping.is_set() or not self._owned():
                return _LOOK_SECONDS
            if wait := self._gate.closed_for():
                return min(wait, _LOOK_SECONDS)
            self.hand = self._take()
        if self.hand is None:
            self._gate.idle()
            return self._idle.next()
        self._idle.reset()
        self._work(self.hand)
        return 0.0

    def _take(self) -> Hand | None:
        """The first order of the main or the retry queue, in turns."""
        for _ in range(len(self._queues)):
            claimed = self._queues[0].claim()
            self._queues.rotate()
            if claimed is None:
                continue
            if claimed.data.crm == self._crm.id:
                return Hand(claimed)
            log.error("order_of_another_crm", queue=claimed.queue, job=claimed.id)
            jobs.done([claimed])  # a CRM that is gone had this name
        return None

    def _work(self, hand: Hand) -> None:
        """While a server is away the order stays in hand, and is gone on with in the next turn."""
        try:
            if self._unmarked is None:
                self._unmarked = self._delivered(hand)
                failpoint("after_send_before_mark")
            self._mark(hand, self._unmarked)
        except AWAY:
            raise
        except Exception:  # its lease brings the records back
            self._forget(hand)
            raise
        failpoint("after_mark_before_done")
        self._forget(hand)

    def _delivered(self, hand: Hand) -> Delivered:
        if self._adapter is None:
            self._adapter = self._crm.open()
        ours, replaced = hand.check()
        return Delivery(self._adapter, self._gate, hand, self._stopping).run(ours, replaced)

    def _mark(self, hand: Hand, delivered: Delivered) -> None:
        # Before the marks: it can be repeated at any time, and they end with this order.
        refused = [a.outcome.message for a in delivered.answers if isinstance(a.outcome, Auth)]
        if refused:
            pause.pause(self._crm, refused[0])
        marks.apply(self._crm, hand.order, delivered)
        failed = sum(not isinstance(answer.outcome, Ok) for answer in delivered.answers)
        self._count(len(delivered.answers), failed)

    def _forget(self, hand: Hand) -> None:
        self._unmarked = self.hand = None
        jobs.done([hand.claimed])

    def _close(self) -> None:
        try:
            if self.hand is not None and self._unmarked is not None:
                self._work(self.hand)
        finally:
            if self._adapter is not None:
                self._adapter.close()
            connections.close_all()
            self._closed.set()
