"""A circuit breaker: stops calls to a failing receiver, then tries one probe.

    closed ── failures in a row, or their share in a window ──▶ open
    open ── the pause is over; the next call is the probe ──▶ half-open
    half-open ── the probe succeeds ──▶ closed;  the probe fails ──▶ open, for longer

A breaker has no clock and no I/O: the caller passes `now`, in seconds of one monotonic clock. Not
thread-safe; its owner is one loop.
"""

from collections import deque
from enum import StrEnum

import msgspec

from msgplatform.core.rates.backoff import add_jitter


class State(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


# The numbers of the states in metrics.
STATE_NUMBERS = {State.CLOSED: 0, State.HALF_OPEN: 1, State.OPEN: 2}


class Policy(msgspec.Struct, frozen=True):
    """When to open and for how long (seconds).

    The breaker opens after `failures_in_a_row`, or if at least `failure_share` of at least
    `min_results` results of the last `window` seconds are failures. The first pause is `first`;
    each further pause in a row is `factor` times as long, up to `cap`, give or take `jitter`. If a
    probe has no result after `probe_timeout`, another probe may start.
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


class _Slice(msgspec.Struct):
    """The results in a tenth of the window."""

    number: int
    results: int = 0
    failures: int = 0


class Breaker:
    """Ask `allow(now)` before each call and report each result with the time the call started."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self.state = State.CLOSED
        self.opened_in_a_row = 0
        self.opened_at = 0.0  # when a failure last opened the breaker
        self._since: float | None = None  # results of calls that started earlier are ignored
        self._retry_at = 0.0  # open: when a probe may start; half-open: when another may
        self._failures_in_a_row = 0
        self._slices: deque[_Slice] = deque()

    def resume(self, now: float, wait: float, opened_in_a_row: int, opened_at: float) -> None:
        """Take over the state of another breaker of the same receiver, which is open for `wait`
        seconds."""
        self.state = State.OPEN
        self.opened_in_a_row = max(1, opened_in_a_row)
        self.opened_at = opened_at
        self._change(now)
        self._retry_at = now + wait

    def allow(self, now: float) -> bool:
        """True if a call may start now. Unless the breaker is closed, the call is the probe."""
        if self.state is State.CLOSED:
            return True
        if now < self._retry_at:
            return False
        self.state = State.HALF_OPEN
        self._since = now
        self._retry_at = now + self.policy.probe_timeout
        return True

    def probe_now(self, now: float) -> None:
        """End the pause of an open breaker: the next call may be the probe."""
        if self.state is State.OPEN:
            self._retry_at = min(self._retry_at, now)

    def wait(self, now: float) -> float:
        """Seconds until `allow` can return True."""
        return 0.0 if self.state is State.CLOSED else max(0.0, self._retry_at - now)

    def success(self, now: float, start: float | None = None, calls: int = 1) -> None:
        """Note that `calls` calls succeeded. The first one started at `start` (default: now)."""
        if self._is_stale(now, start):
            return
        self._failures_in_a_row = 0
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
        self._failures_in_a_row += 1
        self._count(now, 1, failures=1)
        policy = self.policy
        results = sum(part.results for part in self._slices)
        failures = sum(part.failures for part in self._slices)
        is_share_too_high = (
            results >= policy.min_results and failures >= policy.failure_share * results
        )
        if self._failures_in_a_row >= policy.failures_in_a_row or is_share_too_high:
            self._open(now)

    def _is_stale(self, now: float, start: float | None) -> bool:
        """True if a result is ignored: the breaker is open, or the call started before the last
        change of state. Dozens of calls may be in flight when a receiver stops answering."""
        call_start = now if start is None else start
        return self.state is State.OPEN or (self._since is not None and call_start < self._since)

    def _open(self, now: float) -> None:
        policy = self.policy
        # The exponent is bounded so that years of failures do not overflow a float.
        growth = policy.factor ** min(self.opened_in_a_row, 64)
        pause = add_jitter(min(policy.cap, policy.first * growth), policy.jitter)
        self.state = State.OPEN
        self.opened_in_a_row += 1
        self.opened_at = now
        self._change(now)
        self._retry_at = now + pause

    def _change(self, now: float) -> None:
        """Note a change of state: results of earlier calls are ignored from now on."""
        self._since = now
        self._failures_in_a_row = 0
        self._slices.clear()

    def _count(self, now: float, calls: int, failures: int) -> None:
        number = int(now * _SLICES // self.policy.window)
        while self._slices and self._slices[0].number <= number - _SLICES:
            self._slices.popleft()
        if not self._slices or self._slices[-1].number != number:
            self._slices.append(_Slice(number))
        self._slices[-1].results += calls
        self._slices[-1].failures += failures
