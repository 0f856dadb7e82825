"""Limits on calls to a CRM: its rate, its quota of a day, pauses that it asks for, the breaker.

Rate, quota and pauses are in Redis for all processes: CRM `n` has `crm:rate:<n>`, `crm:day:<n>` and
`crm:hold:<n>`. The hold has the value _QUOTA where the quota is used up. The breaker is in the
memory of the only process that serves the CRM. Methods that ask Redis raise RedisError.
"""

import threading
import time
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from crmsync.adapters.base import CRMAdapter, Record
from crmsync.presence import LiveCrm
from msgplatform.core import logging
from msgplatform.core.connections import work_redis, write_into_full
from msgplatform.core.rates import breaker
from msgplatform.core.rates.shared import Quota, SharedRateLimit

log = logging.get(__name__)

DAY_SECONDS = 86_400.0
# A CRM may ask for fewer calls without naming a time, or name an absurd one.
_MIN_HOLD, _MAX_HOLD = 1.0, DAY_SECONDS
_CRM, _QUOTA = b"crm", b"quota"  # the values of a hold
# Seconds until records are due again: people may have raised the quota by then. Meanwhile nothing
# is queued, because the CRM is held.
_QUOTA_SECONDS = 60.0
_MIN_ANSWERED = 100  # records
_SMOOTHING = 0.3  # the share of the newest second, or call, in a moving mean


class CallLimits:
    """The limits of CRM `crm`, shared by its workers; `_lock` guards everything in memory.

    `before` is the last report of the handler that served the CRM until now.
    """

    def __init__(self, crm: int, policy: breaker.Policy, before: LiveCrm | None = None) -> None:
        self._crm = crm
        self._lock = threading.Lock()
        self._breaker = breaker.Breaker(policy)
        if before and before.is_open:
            now = time.monotonic()
            # The result of a probe that was in flight is lost.
            wait = before.retry_in if before.breaker is breaker.State.OPEN else 0.0
            self._breaker.resume(now, wait, 1, now)
        # Shared by all processes, so that two handlers that follow each other keep the limits.
        self._rate = SharedRateLimit(work_redis, f"crm:rate:{crm}")
        self._quota = Quota(work_redis)
        self._held_until, self._is_quota = 0.0, False  # monotonic; True: the quota holds
        self._answered_count = 0
        self._was_idle = False
        # Orders that workers have, since when they have any, and the seconds before that time.
        self._order_count, self._busy_since, self._busy_seconds = 0, 0.0, 0.0
        self._in_flight = 0
        self._latency = self._per_second = 0.0

    # -- before an order is claimed --------------------------------------------------------------
    def seconds_until_open(self) -> float:
        """Seconds until an order may be claimed; 0: now."""
        milliseconds: Any = work_redis().pttl(f"crm:hold:{self._crm}")  # -2 without the key
        hold_seconds: float = max(0.0, milliseconds / 1000)
        now = time.monotonic()
        with self._lock:
            self._held_until = now + hold_seconds
            return max(hold_seconds, self._breaker.wait(now))

    def pause(self) -> tuple[float, bool]:
        """As `seconds_until_open`, but without asking Redis, for an order that is claimed already.
        The second value is True if the only reason to wait is a probe in flight."""
        now = time.monotonic()
        with self._lock:
            hold_seconds = max(0.0, self._held_until - now)
            if self._is_quota:
                hold_seconds = min(hold_seconds, _QUOTA_SECONDS)
            is_probing = self._breaker.state is breaker.State.HALF_OPEN
            return max(hold_seconds, self._breaker.wait(now)), is_probing and not hold_seconds

    def begin(self, records: int) -> bool | None:
        """Begin a call with so many records. Returns None when the breaker forbids it, else True if
        the call is the breaker's probe; then `end` must follow."""
        with self._lock:
            if not self._breaker.allow(time.monotonic()):
                return None
            self._in_flight += records
            return self._breaker.state is not breaker.State.CLOSED

    # -- before a call ---------------------------------------------------------------------------
    def admit(
        self, adapter: CRMAdapter, records: Sequence[Record], is_look_up: bool
    ) -> tuple[int, float]:
        """The number of the first records that may be sent, or looked up, now; with 0 also the
        seconds until some may. Admitted calls count as made, whether they are made or not."""

        def count_calls(size: int) -> int:
            return adapter.calls(records[:size], is_look_up)

        size = len(records)
        if adapter.per_second:
            # The limit counts in units of one record's calls: the burst of a rate may be one call.
            all_calls, unit = count_calls(size), count_calls(1)
            allowed, wait = self._rate.take(adapter.per_second / unit, -(-all_calls // unit))
            if not allowed:
                return 0, max(wait, 0.001)
            if allowed * unit < all_calls:
                size = bisect_right(range(1, size + 1), allowed * unit, key=count_calls)
        if not adapter.per_day:
            return size, 0.0
        wait = 0.0
        while size:
            key, calls = f"crm:day:{self._crm}", count_calls(size)
            wait = self._quota.spend(key, adapter.per_day, DAY_SECONDS, calls).wait
            if not wait:
                return size, 0.0
            size //= 2  # the rest of the day's quota may be enough for fewer
        self.hold(wait, _QUOTA)
        return 0, min(wait, _QUOTA_SECONDS)

    def hold(self, seconds: float, value: bytes = _CRM) -> None:
        """Keep every process from sending to the CRM for so many seconds."""
        seconds = min(_MAX_HOLD, max(_MIN_HOLD, seconds))
        key, milliseconds = f"crm:hold:{self._crm}", int(seconds * 1000)
        # A shorter hold must not end a longer one. Two writes at once do no harm.
        remaining: Any = work_redis().pttl(key)
        if remaining < milliseconds:
            write_into_full(work_redis(), "SET", key, value, "PX", milliseconds)
        until = time.monotonic() + seconds
        with self._lock:
            if until > self._held_until:
                self._held_until, self._is_quota = until, value == _QUOTA
        log.info("crm_held", crm=self._crm, seconds=round(seconds, 1))

    def end_quota_hold(self) -> None:
        """End a hold by the quota, because people may have raised it. If they have not, one order
        is refused and the CRM is held again."""
        key = f"crm:hold:{self._crm}"
        if work_redis().get(key) == _QUOTA:
            work_redis().delete(key)

    # -- after a call ----------------------------------------------------------------------------
    def end(self, records: int, started_at: float, has_failed: bool) -> None:
        """End a call that began at `started_at` (monotonic)."""
        now = time.monotonic()
        with self._lock:
            self._in_flight -= records
            self._answered_count += records
            seconds = now - started_at
            mean = self._latency
            self._latency = seconds if not mean else mean + _SMOOTHING * (seconds - mean)
            previous_state = self._breaker.state
            if has_failed:
                self._breaker.failure(now, started_at)
            else:
                self._breaker.success(now, started_at)
            state, wait = self._breaker.state, self._breaker.wait(now)
        if state is not previous_state:
            log.info("breaker", crm=self._crm, state=state, wait=round(wait, 1))

    def begin_order(self) -> None:
        """A worker has claimed an order; `end_order` must follow."""
        with self._lock:
            if not self._order_count:
                self._busy_since = time.monotonic()
            self._order_count += 1

    def end_order(self) -> None:
        with self._lock:
            self._order_count -= 1
            if not self._order_count:
                self._busy_seconds += time.monotonic() - self._busy_since

    def note_idle(self) -> None:
        """Note that a worker found nothing to send."""
        self._was_idle = True

    def state(self) -> LiveCrm:
        """The CRM's state for `presence`; called every two seconds."""
        now = time.monotonic()
        with self._lock:
            # Count only the time with an order.
            seconds = self._busy_seconds + (now - self._busy_since if self._order_count else 0.0)
            # A second in which a worker was idle and had little to send says nothing about the
            # CRM's speed.
            if seconds > 0 and (not self._was_idle or self._answered_count >= _MIN_ANSWERED):
                rate, mean = self._answered_count / seconds, self._per_second
                self._per_second = rate if not mean else mean + _SMOOTHING * (rate - mean)
            self._busy_seconds, self._busy_since = 0.0, now
            self._answered_count, self._was_idle = 0, False
            return LiveCrm(
                in_flight=self._in_flight,
                latency=round(self._latency, 4),
                per_second=round(self._per_second, 3),
                breaker=self._breaker.state,
                retry_in=self._breaker.wait(now),
                held_for=max(0.0, self._held_until - now),
            )
