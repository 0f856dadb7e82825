"""A circuit breaker: stop calling what keeps failing, then try again with one probe.

    closed ── failures in a row, or their share in a window ──▶ open
    open ── its time is over; the next caller is the probe ──▶ half-open
    half-open ── the probe succeeds ──▶ closed;  it fails ──▶ open, for longer

No clock and no I/O: every call says what time it is, in seconds of one clock that does not go back.
Not thread-safe; its owner is one loop.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from enum import StrEnum

from msgplatform.core.rates.backoff import Uniform, jittered


class State(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


# As metrics show it.
STATE_NUMBERS = {State.CLOSED: 0, State.HALF_OPEN: 1, State.OPEN: 2}


@dataclass(frozen=True, slots=True)
class Policy:
    """When to open and for how long (seconds).

    `failures_in_a_row` opens it; so does a share of failures of at least `failure_share` among
    at least `min_results` results of the last `window` seconds. It stays open for `first`, each
    time in a row `factor` longer up to `cap`, give or take `jitter`. If a probe has no result
    after `probe_timeout`, another probe may start.
    """

    failures_in_a_row: int = 5
    failure_share: float = 0.5
    min_results: int = 20
    window: float = 60.0
    first: float = 5.0
    factor: float = 2.0
    cap: float = 300.0
    jitter: float = 0.2
    probe_timeout: float = 60.0


_SLICES = 10  # the window moves in tenths


class Breaker:
    """Ask `allow(now)` before each call and report each result with the time the call started."""

    def __init__(self, policy: Policy | None = None, rng: Uniform = random) -> None:
        self.policy = policy or Policy()
        self._rng = rng
        self.state = State.CLOSED
        self.opened_in_a_row = 0
        self.opened_at = 0.0  # when the last failure opened it
        self._since: float | None = None  # calls that started before this no longer count
        self._retry_at = 0.0  # open: when a probe may go; half-open: when the probe is given up
        self._row = 0
        self._slices: deque[list[int]] = deque()  # [number of the slice, results, failures]

    def resume(self, now: float, wait: float, opened_in_a_row: int, opened_at: float) -> None:
        """Take over from another breaker of the same receiver, which is open for `wait` seconds."""
        self.state = State.OPEN
        self.opened_in_a_row = max(1, opened_in_a_row)
        self.opened_at = opened_at
        self._change(now)
        self._retry_at = now + wait

    def allow(self, now: float) -> bool:
        """True if a call may start now. While the breaker is not closed that call is the probe."""
        if self.state is State.CLOSED:
            return True
        if now < self._retry_at:
            return False
        self.state = State.HALF_OPEN
        self._since = now
        self._retry_at = now + self.policy.probe_timeout
        return True

    def probe_now(self, now: float) -> None:
        """The next call may be the probe; nothing changes unless the breaker is open."""
        if self.state is State.OPEN:
            self._retry_at = min(self._retry_at, now)

    def wait(self, now: float) -> float:
        """Seconds until `allow` can say yes; 0 when it would now."""
        return 0.0 if self.state is State.CLOSED else max(0.0, self._retry_at - now)

    def success(self, now: float, start: float | None = None, calls: int = 1) -> None:
        """Note that a call that started at `start` (default: now) succeeded; or `calls` of them,
        none of which started earlier."""
        if self._is_stale(now, start):
            return
        self._row = 0
        if self.state is State.HALF_OPEN:
            self.state = State.CLOSED
            self.opened_in_a_row = 0
            self._change(now)
        else:
            self._count(now, calls, failures=0)

    def failure(self, now: float, start: float | None = None) -> None:
        """Note that a call that started at `start` (default: now) failed."""
        if self._is_stale(now, start):
            return
        if self.state is State.HALF_OPEN:
            self._open(now)
            return
        self._row += 1
        self._count(now, 1, failures=1)
        policy = self.policy
        results = sum(part[1] for part in self._slices)
        failures = sum(part[2] for part in self._slices)
        share_is_too_high = (
            results >= policy.min_results and failures >= policy.failure_share * results
        )
        if self._row >= policy.failures_in_a_row or share_is_too_high:
            self._open(now)

    def _is_stale(self, now: float, start: float | None) -> bool:
        """True if a result is to be ignored: the breaker is open, or the call began before the last
        change of state. Dozens may still be in flight to a consumer that stopped answering."""
        call_start = now if start is None else start
        return self.state is State.OPEN or (self._since is not None and call_start < self._since)

    def _open(self, now: float) -> None:
        policy = self.policy
        # The exponent is bounded so that years of failures do not overflow a float.
        growth = policy.factor ** min(self.opened_in_a_row, 64)
        pause = jittered(min(policy.cap, policy.first * growth), policy.jitter, self._rng)
        self.state = State.OPEN
        self.opened_in_a_row += 1
        self.opened_at = now
        self._change(now)
        self._retry_at = now + pause

    def _change(self, now: float) -> None:
        """A change of state: results of calls that started before it no longer count."""
        self._since = now
        self._row = 0
        self._slices.clear()

    def _count(self, now: float, calls: int, failures: int) -> None:
        number = int(now * _SLICES // self.policy.window)
        while self._slices and self._slices[0][0] <= number - _SLICES:
            self._slices.popleft()
        if not self._slices or self._slices[-1][0] != number:
            self._slices.append([number, 0, 0])
        self._slices[-1][1] += calls
        self._slices[-1][2] += failures
