"""Spread calls evenly: a rate limit as a generic cell rate algorithm (ITU-T I.371).

No clock and no I/O: every call says what time it is, in seconds of one clock that does not go back.
Not thread-safe; its owner is one loop.
"""

from __future__ import annotations

import math

# A loop that looks every few milliseconds must be able to send everything that fell due since its
# last look. A burst of more than this would be what the limit is there to prevent.
BURST_SECONDS = 0.05


class RateLimit:
    """At most `rate` calls a second (0: no limit), and at most `burst` at the same moment.

    In any stretch of T seconds there are no more than rate × T + burst calls.
    """

    def __init__(self, rate: float) -> None:
        self._due = -math.inf  # when the next call is due by the even spacing
        self.change(rate)

    def change(self, rate: float) -> None:
        """Change the rate; earlier calls still count."""
        self.rate = rate
        self.burst = max(1, math.floor(rate * BURST_SECONDS))

    def allowance(self, now: float) -> float:
        """How many calls may start now: a whole number, or infinity."""
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
        """Assume a full burst just now, by a process that kept the same limit before us."""
        self.take(now, self.burst)

    def is_idle(self, now: float) -> bool:
        """True if earlier calls no longer matter: a new RateLimit would behave the same."""
        return self._due <= now
