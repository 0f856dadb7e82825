"""Spread calls evenly: a rate limit as a generic cell rate algorithm (ITU-T I.371).

A limit has no clock and no I/O: the caller passes `now`, in seconds of one monotonic clock. Not
thread-safe; its owner is one loop.
"""

import math

# A loop that looks every few milliseconds must be able to send all calls that became due since the
# last look. The limit must prevent longer bursts.
BURST_SECONDS = 0.05


class RateLimit:
    """At most `rate` calls a second (0: no limit), and at most `burst` at the same moment.

    In any T seconds there are at most rate × T + burst calls.
    """

    def __init__(self, rate: float) -> None:
        self._due = -math.inf  # when the next call is due by the even spacing
        self.change(rate)

    def change(self, rate: float) -> None:
        """Change the rate; earlier calls still count."""
        self.rate = rate
        self.burst = max(1, math.floor(rate * BURST_SECONDS))

    def allowance(self, now: float) -> float:
        """The number of calls that may start now: a whole number, or infinity."""
        if not self.rate:
            return math.inf
        ahead = max(0.0, (self._due - now) * self.rate)  # calls made before their even time
        # 1e-6: rounding must not refuse a caller that waited exactly long enough.
        return max(0, math.floor(self.burst - ahead + 1e-6))

    def take(self, now: float, calls: int = 1) -> None:
        """Count calls that start now."""
        if self.rate:
            self._due = max(self._due, now) + calls / self.rate

    def wait(self, now: float) -> float:
        """Seconds until `allowance` is at least one; 0 when it is."""
        if not self.rate:
            return 0.0
        return max(0.0, self._due - now - (self.burst - 1) / self.rate)

    def hold(self, now: float) -> None:
        """Assume a full burst just now, by a former process with the same limit."""
        self.take(now, self.burst)

    def is_idle(self, now: float) -> bool:
        """True if earlier calls no longer matter: a new RateLimit would behave the same."""
        return self._due <= now
