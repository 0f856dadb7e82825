"""A lane: a thread with an adapter of its own, which works off one order after the other.

nothing in hand ── claim ──> in hand ── deliver ──> unmarked ── mark ──> nothing in hand
                                │                      └── a server is unavailable: stays
                                └── an error: dropped; its records come back after the lease
"""

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
from crmsync.handler.call_limits import CallLimits
from crmsync.handler.claimed_order import ClaimedOrder
from crmsync.handler.delivery import Delivery
from crmsync.queues import MainQueue, RetryQueue
from msgplatform.core import logging
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.errors import UNAVAILABLE
from msgplatform.core.failpoints import failpoint
from msgplatform.core.queues import jobs
from msgplatform.core.rates.backoff import Backoff

log = logging.get(__name__)

# How often a lane that may not send looks whether it may now.
_LOOK_SECONDS = 0.1

Count = Callable[[int, int], None]  # records that are done, and how many of them failed


class Lane:
    """A lane of `crm` takes orders as long as `owned()`. `stopping` lets it finish the one in hand.

    Everything belongs to its thread but `hand`, which others may read.
    """

    def __init__(
        self,
        crm: Crm,
        gate: CallLimits,
        owned: Callable[[], bool],
        stopping: threading.Event,
        count: Count,
    ) -> None:
        self._crm, self._gate, self._owned = crm, gate, owned
        self._stopping, self._count = stopping, count
        self._queues = deque([MainQueue(crm.name), RetryQueue(crm.name)])
        self._adapter: CRMAdapter | None = None
        self._unmarked: Delivered | None = None
        self._idle = Backoff(first=0.01, factor=1.3, cap=1.0)  # `wake` ends such a pause
        self.hand: ClaimedOrder | None = None
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
        """Work on one order. Returns seconds until the next turn."""
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

    def _take(self) -> ClaimedOrder | None:
        """The first order of the main or the retry queue, in turns."""
        for _ in range(len(self._queues)):
            claimed = self._queues[0].claim()
            self._queues.rotate()
            if claimed is None:
                continue
            if claimed.data.crm == self._crm.id:
                return ClaimedOrder(claimed)
            log.error("order_of_another_crm", queue=claimed.queue, job=claimed.id)
            jobs.done([claimed])  # an earlier CRM had this name
        return None

    def _work(self, hand: ClaimedOrder) -> None:
        """Deliver and mark. While a server is unavailable the order stays in hand, and the next
        turn goes on where this one stopped."""
        try:
            if self._unmarked is None:
                if self._adapter is None:
                    self._adapter = self._crm.open()
                checked = hand.check()
                delivery = Delivery(self._adapter, self._gate, hand, self._stopping)
                self._unmarked = delivery.run(*checked)
                # Killed here: the lease runs out, and the records are looked up before they are
                # sent again.
                failpoint("after_send_before_mark")
            self._mark(hand, self._unmarked)
        except UNAVAILABLE:
            raise
        except Exception:  # the end of its lease brings the records back
            self._forget(hand)
            raise
        # Killed here: everything is marked, and `recovery.recover` drops the claimed order.
        failpoint("after_mark_before_done")
        self._forget(hand)

    def _mark(self, hand: ClaimedOrder, delivered: Delivered) -> None:
        # Pause first: that can be repeated at any time, and after the marks the order is forgotten.
        refused = [a.outcome.message for a in delivered.answers if isinstance(a.outcome, Auth)]
        if refused:
            pause.pause(self._crm, refused[0])
        marks.apply(self._crm, hand.order, delivered)
        failed = sum(not isinstance(answer.outcome, Ok) for answer in delivered.answers)
        self._count(len(delivered.answers), failed)

    def _forget(self, hand: ClaimedOrder) -> None:
        self._unmarked = self.hand = None
        jobs.done([hand.claimed])

    def _close(self) -> None:
        """The thread ends: mark what was delivered, if that is possible now."""
        try:
            if self.hand is not None and self._unmarked is not None:
                self._work(self.hand)
        finally:
            if self._adapter is not None:
                self._adapter.close()
            connections.close_all()
            self._closed.set()
