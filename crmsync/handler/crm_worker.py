"""The workers of one CRM: threads with an adapter each, which work off one order after the other,
and pause a CRM that refuses its credentials.

no order ── claim ──> claimed ── deliver ──> unmarked ── mark ──> no order
                         │                      └── a server is unavailable: the order stays
                         └── an error: the order is dropped; its records return after the lease
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack

from django.db import connections, transaction

from crmsync import models
from crmsync.adapters.base import CRMAdapter
from crmsync.adapters.outcomes import Auth, Ok
from crmsync.directory import Crm, fingerprint
from crmsync.handler import marks
from crmsync.handler.answers import DeliveryResult, Unsent
from crmsync.handler.call_limits import CallLimits
from crmsync.handler.claimed_order import ClaimedOrder
from crmsync.handler.delivery import Delivery
from crmsync.models.operations import MAX_MESSAGE
from crmsync.monitor import counters
from crmsync.orders import MainQueue, Order, RetryQueue
from crmsync.presence import LiveCrm
from msgplatform.core import logging
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.daemons.timer import lease_clock
from msgplatform.core.data import sql, transactions
from msgplatform.core.errors import UNAVAILABLE
from msgplatform.core.failpoints import failpoint
from msgplatform.core.queues import jobs
from msgplatform.core.rates import breaker
from msgplatform.core.rates.backoff import Backoff
from msgplatform.core.tracing import spans

log = logging.get(__name__)

# Seconds between looks of a worker that may not send now.
_LOOK_SECONDS = 0.1

CountRecords = Callable[[int], None]  # the number of marked records


class CrmWorkers:
    """All workers of one CRM in this process: as many as the CRM takes calls at a time. The
    handler's loop starts and stops them, and tells them how long it owns the CRM.

    `before` is the last report of the handler that served the CRM until now.
    """

    def __init__(
        self, crm: Crm, policy: breaker.Policy, before: LiveCrm | None, count: CountRecords
    ) -> None:
        self.crm = crm
        self.limits = CallLimits(crm.id, policy, before)
        # The loop writes this time, and workers claim no order after it, even when the loop hangs.
        self._owned_until = 0.0
        self._stopping = threading.Event()
        self._workers = [
            CrmWorker(crm, self.limits, self.is_owned, self._stopping, count)
            for _ in range(crm.concurrency)
        ]

    def start(self) -> None:
        """Raises RedisError, and RuntimeError if the system has too few threads left: then all
        workers end."""
        self.limits.end_quota_hold()  # changed settings may have started these workers
        try:
            for worker in self._workers:
                worker.loop.start()
        except RuntimeError:
            self.stop()
            raise

    def wake(self) -> None:
        """Look for orders at once."""
        for worker in self._workers:
            worker.loop.wake()

    def own(self, seconds: float) -> None:
        """Allow claims for so many seconds: no other handler takes this CRM's orders meanwhile."""
        self._owned_until = lease_clock() + seconds

    def is_owned(self) -> bool:
        """True if this process may claim the CRM's orders."""
        return lease_clock() < self._owned_until

    @property
    def is_busy(self) -> bool:
        """True if a worker has an order."""
        return any(worker.order for worker in self._workers)

    @property
    def is_hung(self) -> bool:
        """True if every worker hangs or has ended: nobody here works for the CRM."""
        return all(worker.closed.is_set() or worker.is_hung for worker in self._workers)

    @property
    def is_held(self) -> bool:
        """True if a limit or the breaker forbids calls, which only this process knows."""
        return self.limits.pause()[0] > 0

    def is_unused(self, seconds: float) -> bool:
        """True if the CRM had no work for so long, and its limits have nothing to remember."""
        is_over = lease_clock() > self._owned_until + seconds
        return not self.is_busy and is_over and not self.is_held

    def renew_leases(self) -> None:
        """Renew the leases of the claimed orders that need it. Raises what an unavailable database
        raises."""
        for worker in self._workers:
            if order := worker.order:
                order.renew_if_due()

    def stop(self) -> None:
        """Ask the workers to end: they finish their orders and claim no more."""
        self._stopping.set()
        for worker in self._workers:
            worker.loop.stop()

    @property
    def has_ended(self) -> bool:
        """True if every thread has ended."""
        return all(worker.closed.is_set() for worker in self._workers)

    def wait(self, deadline: float) -> None:
        """Wait until the threads have ended, at most until `deadline` (monotonic)."""
        for worker in self._workers:
            worker.closed.wait(max(0.0, deadline - time.monotonic()))


class CrmWorker:
    """A thread that claims orders of `crm` as long as `is_owned()`. With `stopping` set it finishes
    the order that it has.

    Everything belongs to the thread, except `order` and `is_hung`, which others may read, and
    `closed`, which is set when the thread has ended.
    """

    def __init__(
        self,
        crm: Crm,
        limits: CallLimits,
        is_owned: Callable[[], bool],
        stopping: threading.Event,
        count: CountRecords,
    ) -> None:
        self._crm, self._limits, self._is_owned = crm, limits, is_owned
        self._stopping, self._count = stopping, count
        self._queues = deque([MainQueue(crm.name), RetryQueue(crm.name)])
        self._adapter: CRMAdapter | None = None
        self._unmarked: DeliveryResult | None = None
        self._idle = Backoff(first=0.01, factor=1.3, cap=1.0)  # `wake` ends such a pause
        self.order: ClaimedOrder | None = None
        self.loop = ThreadLoop(f"crm-{crm.name}", self._turn, last=self._close)
        self.closed = threading.Event()

    @property
    def is_hung(self) -> bool:
        """True if a call of the adapter does not return. Its late answers do no harm: a mark
        applies only with the order's claim, or if the CRM has stored a newer version."""
        order = self.order
        # Answers that wait for the database are no call.
        return order is not None and self._unmarked is None and order.is_overdue

    def _turn(self) -> float:
        """Work on one order. Returns seconds until the next turn."""
        if self.order is None:
            if self._stopping.is_set() or not self._is_owned():
                return _LOOK_SECONDS
            if wait := self._limits.seconds_until_open():
                return min(wait, _LOOK_SECONDS)
            self.order = self._claim()
        if self.order is None:
            self._limits.note_idle()
            return self._idle.next()
        self._idle.reset()
        self._work(self.order)
        return 0.0

    def _claim(self) -> ClaimedOrder | None:
        """Claim the first order of the main or the retry queue, in turns."""
        for _ in range(len(self._queues)):
            job = self._queues[0].claim()
            self._queues.rotate()
            if job is None:
                continue
            if job.data.crm == self._crm.id:
                self._limits.begin_order()
                return ClaimedOrder(job)
            log.error("order_of_another_crm", queue=job.queue, job=job.id)
            jobs.remove_orders([job])  # an earlier CRM had this name
        return None

    def _work(self, order: ClaimedOrder) -> None:
        """Deliver and mark. While a server is unavailable the order stays, and the next turn
        continues."""
        try:
            if self._unmarked is None:
                if self._adapter is None:
                    self._adapter = self._crm.open()
                entries = order.check()
                delivery = Delivery(self._adapter, self._limits, order, self._stopping)
                began_at = spans.now()
                self._unmarked = delivery.run(entries)
                if began_at:
                    self._record_spans(order.order, self._unmarked, began_at)
                # Killed here: the lease runs out, and the records are looked up before they are
                # sent again.
                failpoint("after_send_before_mark")
            answers = self._unmarked.answers
            # Pause first: a pause can be repeated, but after the marks the order is dropped.
            refusals = [a.outcome.message for a in answers if isinstance(a.outcome, Auth)]
            if refusals:
                pause(self._crm, refusals[0])
            marks.apply(self._crm, order.order, self._unmarked)
            self._count(len(answers))
        except UNAVAILABLE:
            raise
        except Exception:  # when its lease ends the records are due again
            self._drop(order)
            raise
        # Killed here: everything is marked, and `core.queues.recovery` drops the claimed order.
        failpoint("after_mark_before_done")
        self._drop(order)

    def _record_spans(self, order: Order, result: DeliveryResult, began_at: int) -> None:
        answers = [answer for answer in result.answers if not isinstance(answer.outcome, Unsent)]
        keys = [answer.entry.request.key for answer in answers]
        errors = {
            answer.entry.request.key: type(answer.outcome).__name__
            for answer in answers
            if not isinstance(answer.outcome, Ok)
        }
        counters.record_spans("send", began_at, order.policy, self._crm.name, keys, errors)

    def _drop(self, order: ClaimedOrder) -> None:
        """End the claim; the worker has no order afterwards."""
        self._unmarked = self.order = None
        self._limits.end_order()
        jobs.remove_orders([order.job])

    def _close(self) -> None:
        """Called when the thread ends: mark what was delivered, if that is possible now."""
        # Each of these is done whatever the others raise: nobody serves the CRM until `closed` is
        # set, and an adapter of another package may fail to log out.
        with ExitStack() as stack:
            stack.callback(self.closed.set)
            stack.callback(connections.close_all)
            if self._adapter is not None:
                stack.callback(self._adapter.close)
            if self.order is not None and self._unmarked is not None:
                self._work(self.order)


def pause(crm: Crm, because: str) -> None:
    """Pause a CRM that refuses its credentials until somebody resumes it: meanwhile no source is
    read for the CRM and no record is sent. A CRM with corrected settings is not paused.

    Raises what an unavailable database raises.
    """

    def pause_once() -> None:
        with transaction.atomic():
            row = models.Crm.objects.select_for_update().filter(pk=crm.id).first()
            # With another fingerprint the refused settings have been replaced.
            if row is None or row.paused_at or fingerprint(row) != crm.fingerprint:
                return
            row.paused_at, row.paused_because = sql.now(), because[:MAX_MESSAGE]
            row.save(update_fields=["paused_at", "paused_because"])
        log.warning("crm_paused", crm=crm.name)

    transactions.retrying(pause_once)
