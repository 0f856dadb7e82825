"""One CRM that this process serves: as many lanes as it takes calls at a time."""

from __future__ import annotations

import threading
import time

from crmsync.directory import Crm
from crmsync.handler.call_limits import CallLimits
from crmsync.handler.lane import Count, Lane
from crmsync.monitor.crm_status import Live
from msgplatform.core.rates import breaker


class CrmLanes:
    """The lanes of one CRM. The program's loop starts and stops them, and says how long it owns the
    CRM.

    `before` is what the handler that served the CRM until now last reported of it.
    """

    def __init__(self, crm: Crm, policy: breaker.Policy, before: Live | None, count: Count) -> None:
        self.crm = crm
        self.gate = CallLimits(crm.id, policy, before)
        # Written by the loop and read by the lanes: a lane takes no order once it is over, even
        # when the loop hangs.
        self._owned_until = 0.0
        self._stopping = threading.Event()
        self._lanes = [
            Lane(crm, self.gate, self.is_owned, self._stopping, count)
            for _ in range(crm.concurrency)
        ]

    def start(self) -> None:
        for lane in self._lanes:
            lane.start()

    def wake(self) -> None:
        """There are orders."""
        for lane in self._lanes:
            lane.wake()

    def own(self, seconds: float) -> None:
        """No other handler takes this CRM's orders for so many seconds."""
        self._owned_until = time.monotonic() + seconds

    def is_owned(self) -> bool:
        return time.monotonic() < self._owned_until

    @property
    def is_busy(self) -> bool:
        return any(lane.hand for lane in self._lanes)

    @property
    def is_held(self) -> bool:
        """A limit or the breaker keeps it from sending, which only this process knows."""
        return self.gate.pause()[0] > 0

    def is_over(self, seconds: float) -> bool:
        """It had no work for so long, and the gate has nothing to remember."""
        now = time.monotonic()
        return not self.is_busy and now > self._owned_until + seconds and not self.is_held

    def keep_leases(self) -> None:
        """Raises what an unavailable database raises."""
        for lane in self._lanes:
            if hand := lane.hand:
                hand.renew_if_due()

    def stop(self) -> None:
        """Ask the lanes to end: what they have in hand is finished, nothing new is taken."""
        self._stopping.set()
        for lane in self._lanes:
            lane.stop()

    @property
    def has_ended(self) -> bool:
        return all(lane.has_ended for lane in self._lanes)

    def wait(self, deadline: float) -> bool:
        """Wait until the lanes have ended, or the deadline (monotonic); whether they have."""
        ended = [lane.wait(max(0.0, deadline - time.monotonic())) for lane in self._lanes]
        return all(ended)
