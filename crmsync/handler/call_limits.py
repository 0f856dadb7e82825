"""Whether a call to a CRM may go now. All lanes of the CRM share one gate.

Limits and pauses are kept in Redis, where every process sees them: CRM `n` has `crm:rate:<n>`,
`crm:day:<n>` and `crm:hold:<n>`. The breaker is this process's, which is the only one that serves
the CRM. What asks Redis raises RedisError.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from typing import Any

from crmsync.adapters.base import CRMAdapter
from crmsync.monitor.crm_status import Live
from msgplatform.core import logging
from msgplatform.core.connections import work_redis
from msgplatform.core.rates import breaker
from msgplatform.core.rates.shared import Quota, SharedRateLimit

log = logging.get(__name__)

DAY_SECONDS = 86_400.0
# A CRM may ask for fewer calls without saying how long, or name an absurd time.
_MIN_HOLD, _MAX_HOLD = 1.0, DAY_SECONDS
_SMOOTHING = 0.3  # the share of the newest second, or call, in a moving mean


class CallLimits:
    """The gate of CRM `crm`, shared by its lanes; `_lock` guards everything in memory.

    `before` is what the handler that served the CRM until now last reported.
    """

    def __init__(self, crm: int, policy: breaker.Policy, before: Live | None = None) -> None:
        self._crm = crm
        self._lock = threading.Lock()
        self._breaker = breaker.Breaker(policy)
        if before and before.is_open:
            now = time.monotonic()
            # A probe that was under way has no result any more.
            wait = before.retry_in if before.breaker is breaker.State.OPEN else 0.0
            self._breaker.resume(now, wait, 1, now)
        # Shared by all processes, so that two handlers that follow each other keep the limits.
        self._rate = SharedRateLimit(work_redis, f"crm:rate:{crm}")
        self._quota = Quota(work_redis)
        self._held_until = 0.0  # monotonic
        self._answered, self._measured_at = 0, time.monotonic()
        self._was_idle = False
        self._in_flight = 0
        self._latency = self._per_second = 0.0

    # -- before an order is taken ----------------------------------------------------------------
    def closed_for(self) -> float:
        """Seconds until an order may be taken; 0: now."""
        left: Any = work_redis().pttl(f"crm:hold:{self._crm}")  # -2: there is no such key
        held: float = max(0.0, left / 1000)
        now = time.monotonic()
        with self._lock:
            self._held_until = now + held
            return max(held, self._breaker.wait(now))

    def pause(self) -> tuple[float, bool]:
        """As `closed_for`, by what this process knows already, without asking Redis; for an order
        in hand. The second value says whether this only waits for a probe that is in flight."""
        now = time.monotonic()
        with self._lock:
            held = max(0.0, self._held_until - now)
            is_probing = self._breaker.state is breaker.State.HALF_OPEN
            return max(held, self._breaker.wait(now)), is_probing and not held

    def begin(self, records: int) -> bool | None:
        """Begin a call with so many records. None when the breaker does not allow it, else whether
        the call is the breaker's probe; then `answered` must follow."""
        with self._lock:
            if not self._breaker.allow(time.monotonic()):
                return None
            self._in_flight += records
            return self._breaker.state is not breaker.State.CLOSED

    # -- before a call ---------------------------------------------------------------------------
    def admit(self, adapter: CRMAdapter, records: int) -> tuple[int, float]:
        """How many of so many records may be sent now; with 0 the seconds until some may.

        What is admitted counts as called, whether it is sent or not.
        """
        wanted = adapter.calls(records)
        if adapter.per_second:
            needed = adapter.calls(1)
            allowed, wait = self._rate.take(adapter.per_second, wanted)
            if allowed < needed:
                return 0, max(wait, 0.001)
            if allowed < wanted:
                records = bisect_right(range(1, records + 1), allowed, key=adapter.calls)
        if not adapter.per_day:
            return records, 0.0
        wait = 0.0
        while records:
            calls = adapter.calls(records)
            wait = self._quota.spend(f"crm:day:{self._crm}", adapter.per_day, DAY_SECONDS, calls)
            if not wait:
                return records, 0.0
            records //= 2  # what is left of the day may do for fewer
        self.hold(wait)
        return 0, wait

    def hold(self, seconds: float) -> None:
        """Keep every process from sending to the CRM for so many seconds."""
        seconds = min(_MAX_HOLD, max(_MIN_HOLD, seconds))
        key, milliseconds = f"crm:hold:{self._crm}", int(seconds * 1000)
        # A shorter hold must not end a longer one. Two processes that both write do no harm.
        left: Any = work_redis().pttl(key)
        if left < milliseconds:
            work_redis().set(key, 1, px=milliseconds)
        with self._lock:
            self._held_until = max(self._held_until, time.monotonic() + seconds)
        log.info("crm_held", crm=self._crm, seconds=round(seconds, 1))

    # -- after a call ----------------------------------------------------------------------------
    def answered(self, records: int, started: float, failed: bool) -> None:
        """A call that began at `started` (monotonic) is over."""
        now = time.monotonic()
        with self._lock:
            self._in_flight -= records
            self._answered += records
            took = now - started
            known = self._latency
            self._latency = took if not known else known + _SMOOTHING * (took - known)
            before = self._breaker.state
            if failed:
                self._breaker.failure(now, started)
            else:
                self._breaker.success(now, started)
            state, wait = self._breaker.state, self._breaker.wait(now)
        if state is not before:
            log.info("breaker", crm=self._crm, state=state, wait=round(wait, 1))

    def idle(self) -> None:
        """A lane found nothing to send."""
        self._was_idle = True

    def live(self) -> Live:
        """For `crm_status`; called every two seconds."""
        now = time.monotonic()
        with self._lock:
            elapsed = now - self._measured_at
            # A second in which a lane was idle says nothing of the CRM's speed.
            if not self._was_idle and elapsed > 0:
                rate, known = self._answered / elapsed, self._per_second
                self._per_second = rate if not known else known + _SMOOTHING * (rate - known)
            self._answered, self._measured_at, self._was_idle = 0, now, False
            return Live(
                in_flight=self._in_flight,
                latency=round(self._latency, 4),
                per_second=round(self._per_second, 3),
                breaker=self._breaker.state,
                retry_in=self._breaker.wait(now),
                held_for=max(0.0, self._held_until - now),
            )
