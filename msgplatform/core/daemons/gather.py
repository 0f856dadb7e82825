"""Under load a step waits a moment, so that its next batch is large enough to be cheap."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from msgplatform.core.daemons.timer import Every

# How long (seconds) the measured rate takes to follow a change of the real one.
_MEMORY_SECONDS = 0.5
# A batch of so many costs about twice what each of its items costs in a full one.
WORTH = 20


class Gather:
    """When to take the next batch: at once, or `seconds` later when the wait is worth it.

    The wait is worth it if at least `worth` items are expected meanwhile, at the rate of the last
    batches. After a full batch, or an empty one, there is no wait, so an idle step takes what comes
    at once.
    """

    def __init__(
        self,
        full: int,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
        worth: int = WORTH,
    ) -> None:
        self._full, self._seconds, self._clock, self._worth = full, seconds, clock, worth
        self._next = Every(seconds, clock)
        self._rate, self._took_at = 0.0, clock()

    @property
    def is_due(self) -> bool:
        return self._next.is_due

    def took(self, count: int) -> float:
        """Note that `count` items were taken; the seconds until the next batch is due."""
        now = self._clock()
        span, self._took_at = max(1e-3, now - self._took_at), now
        self._rate += (count / span - self._rate) * (1 - math.exp(-span / _MEMORY_SECONDS))
        if 0 < count < self._full and self._rate * self._seconds >= self._worth:
            self._next.restart()
            return self._seconds
        self._next.at_once()
        return 0.0
