"""Batches that are worth their price: under load a step waits a moment for a full one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from msgplatform.core.daemons.timer import Every

# How long it takes to notice that more comes, or less (seconds).
_MEMORY_SECONDS = 0.5
# A batch of so many costs about twice what each of its items costs in a full one.
WORTH = 20


class Gather:
    """When to take the next batch: at once, or `seconds` later when that is worth it.

    It is worth it when, as fast as items came lately, at least `worth` of them come meanwhile; not
    after a full batch, and not after none. So what comes to an idle step is taken at once.
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
        """So many have been taken; the seconds until the next batch is due."""
        now = self._clock()
        span, self._took_at = max(1e-3, now - self._took_at), now
        self._rate += (count / span - self._rate) * (1 - math.exp(-span / _MEMORY_SECONDS))
        if 0 < count < self._full and self._rate * self._seconds >= self._worth:
            self._next.restart()
            return self._seconds
        self._next.at_once()
        return 0.0
