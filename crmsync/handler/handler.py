"""DataHandler: serves CRMs, each in lanes of its own, so that none delays another.

A CRM is served by one process at a time. The loop decides which ones this process serves, keeps
the leases of what is in hand and reports; lanes (threads) take the orders, send and mark them.
"""

from __future__ import annotations

import threading
import time
import uuid

from django.conf import settings

from crmsync import signals
from crmsync.adapters.client import CALL_SECONDS
from crmsync.directory import Crm, Crms
from crmsync.handler import dead_queue, pause
from crmsync.handler.crm_lanes import CrmLanes
from crmsync.monitor import crm_status
from crmsync.queues import MainQueue, RetryQueue
from msgplatform.core.daemons.daemon import Worker
from msgplatform.core.daemons.heartbeats import alive
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.daemons.timer import Every
from msgplatform.core.errors import UNAVAILABLE
from msgplatform.core.queues import owners
from msgplatform.core.rates import breaker

# How long a CRM belongs to its handler, which renews this in time: after a kill it is free then.
OWNERSHIP_SECONDS = 5.0
# The wake-up signal wakes the loop for new orders, but not when a CRM's limit is over or its owner
# is gone.
_TURN_SECONDS = 0.1
_IDLE_TURN_SECONDS = 1.0
_REPORT_SECONDS = 2.0
_RECONCILE_SECONDS = 10.0
_KEEP_SECONDS = 0.5
# The threads of a CRM without work are kept for so long.
_IDLE_SECONDS = 60.0
# A handler that serves its share takes further CRMs only so often: handlers with fewer come first.
_MORE_SECONDS = 1.0


class DataHandler(Worker):
    role = "sync_handler"
    wake_signal = signals.HANDLER

    def __init__(self, policy: breaker.Policy | None = None) -> None:
        super().__init__()
        self.name = uuid.uuid4().hex
        self.crms = Crms()
        self._policy = policy or breaker.Policy(
            cap=settings.CRM_BREAKER_SECONDS, probe_timeout=2 * CALL_SECONDS
        )
        # Both belong to the loop; the keeper's thread reads them.
        self._served: dict[int, CrmLanes] = {}
        self._ending: list[CrmLanes] = []  # they finish what they have in hand
        self._counting = threading.Lock()
        # In a thread of its own: an unavailable Redis holds up the loop, and leases would run out.
        self._keeper = ThreadLoop("crm-leases", self._keep_leases, every=_KEEP_SECONDS)
        self._next_report = Every(_REPORT_SECONDS)
        self._next_reconcile = Every(_RECONCILE_SECONDS)
        self._handlers = 1
        self._next_more = Every(_MORE_SECONDS)
        self._next_more.restart()
        self._next_mirror = Every(dead_queue.EVERY_SECONDS)
        self._reported: list[int] = []

    def start(self) -> None:
        self._keeper.start()

    def turn(self) -> bool:
        self.crms.refresh()
        self._ending = [lanes for lanes in self._ending if not lanes.has_ended]
        for pk, lanes in list(self._served.items()):
            # Set up otherwise since, or without work for long.
            if self.crms.get(pk) != lanes.crm or lanes.is_over(_IDLE_SECONDS):
                lanes.stop()
                self._ending.append(lanes)
                del self._served[pk]
        if self._next_report.take():
            self._report()
        self._own()
        if self._next_reconcile.take():
            pause.reconcile()
        if self._next_mirror.take():
            dead_queue.mirror(self.crms.known.values())
        # Waits here and says that it worked: the daemon's own pauses grow, and a CRM with new work
        # must be owned soon.
        is_busy = any(lanes.is_busy or lanes.is_held for lanes in self._served.values())
        self.stopping.wait_for_work(_TURN_SECONDS if is_busy else _IDLE_TURN_SECONDS)
        return True

    def drain(self, deadline: float) -> None:
        """Finish the orders in hand: what is cut off has to be looked up or sent once more."""
        every = [*self._served.values(), *self._ending]
        for lanes in every:
            lanes.stop()
        if any(lanes.is_busy for lanes in every):
            deadline = max(deadline, time.monotonic() + CALL_SECONDS)
        for lanes in every:
            lanes.wait(deadline)

    def stop(self) -> None:
        self._keeper.stop()
        for lanes in self._served.values():
            lanes.stop()
        try:
            owners.disown([_owned_name(lanes.crm) for lanes in self._served.values()], self.name)
            crm_status.withdraw(self._reported)
        except UNAVAILABLE:
            return  # what this handler owned is free after OWNERSHIP_SECONDS

    # -- which CRMs ------------------------------------------------------------------------------
    def _own(self) -> None:
        """Serve the CRMs that have work and that no other handler serves."""
        # The lanes of before have to end first: two adapters must not send the same records.
        ending = {lanes.crm.id for lanes in self._ending}
        wanted = {
            _owned_name(crm): crm
            for crm in self.crms.known.values()
            if crm.takes_work and crm.id not in ending
        }
        self._keep_owned()
        mine = {pk for pk, lanes in self._served.items() if lanes.is_owned()}
        capacity = max(0, -(-len(wanted) // self._handlers) - len(mine))
        if self._next_more.take():
            capacity = len(wanted)
        groups = {
            name: [MainQueue(crm.name).name, RetryQueue(crm.name).name]
            for name, crm in wanted.items()
            if capacity or crm.id in mine
        }
        won = owners.own_groups(groups, self.name, OWNERSHIP_SECONDS)
        surplus = [name for name in won if wanted[name].id not in mine][capacity:]
        owners.disown(surplus, self.name)
        for crm in (wanted[name] for name in won if name not in surplus):
            if crm.id not in self._served:
                before = crm_status.read().get(crm.id)
                lanes = CrmLanes(crm, self._policy, before, self._count)
                # Started first: a thread that cannot be had is tried again in the next turn.
                lanes.start()
                self._served[crm.id] = lanes
            # A little less than Redis has it: lanes must not go on when another handler may.
            self._served[crm.id].own(OWNERSHIP_SECONDS - 2 * _TURN_SECONDS)
            self._served[crm.id].wake()

    def _keep_owned(self) -> None:
        """Stay the owner without work in the queues too, while an order is in hand or the gate is
        closed: its state is in this process."""
        kept = [one for one in self._served.values() if one.is_busy or one.is_held]
        kept = [one for one in kept if one.is_owned()]
        names = [_owned_name(one.crm) for one in kept]
        lost = owners.renew(names, self.name, OWNERSHIP_SECONDS)
        for lanes in kept:
            if _owned_name(lanes.crm) not in lost:
                lanes.own(OWNERSHIP_SECONDS - 2 * _TURN_SECONDS)

    def _keep_leases(self) -> None:
        """Called in the keeper's thread."""
        for lanes in (*list(self._served.values()), *self._ending):
            lanes.keep_leases()

    # -- reports ---------------------------------------------------------------------------------
    def _count(self, done: int, failed: int) -> None:
        """Called in the lanes' threads."""
        with self._counting:
            self.heartbeat.done += done
            self.heartbeat.failed += failed

    def _report(self) -> None:
        crm_status.withdraw([pk for pk in self._reported if pk not in self._served])
        mine = {pk: one for pk, one in self._served.items() if one.is_owned() or one.is_busy}
        crm_status.report({pk: lanes.gate.live() for pk, lanes in mine.items()})
        self._reported = list(mine)
        self._handlers = max(1, sum(beat.role == self.role for beat in alive()))


def _owned_name(crm: Crm) -> str:
    """The name under which a CRM's main and retry queue are owned together."""
    return f"crm-{crm.name}"
