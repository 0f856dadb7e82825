"""Timers of a loop: for work now and then, for batches that are worth a wait, and for work that
must not hold up the loop."""

import math
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

# CLOCK_MONOTONIC of Linux stands still while the machine is suspended.
_LEASE_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def lease_clock() -> float:
    """Seconds that never go back, and go on while the machine is suspended: the clock of a process
    that compares its time with leases in Redis or the database."""
    return time.clock_gettime(_LEASE_CLOCK)


class Every:
    """A timer that is due at once the first time, and then `seconds` after each `restart`.

    The owner's loop asks whether the timer is due; there is no thread.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._next = -math.inf

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._next

    def take(self) -> bool:
        """True if the timer is due; a due timer is restarted."""
        is_due = self.is_due
        if is_due:
            self.restart()
        return is_due

    def restart(self) -> None:
        """Be due `seconds` from now."""
        self._next = time.monotonic() + self._seconds

    def at_once(self) -> None:
        """Be due now."""
        self._next = -math.inf


def work_on_some(work: Callable[[T], int], items: Sequence[T], until: float) -> int:
    """Call `work` with these items until `until` (monotonic), at least once; returns the sum of its
    counts."""
    count = 0
    # Each call begins at another item, so that an item with much work does not delay the others.
    first = int(time.monotonic() * 1000) % max(1, len(items))
    for item in (*items[first:], *items[:first]):
        count += work(item)
        if time.monotonic() >= until:
            break
    return count


# Seconds that the measured rate takes to follow a change of the real rate.
_MEMORY_SECONDS = 0.5
# An item costs about twice as much in a batch of this size as in a full batch.
_WORTH = 20


class Gather:
    """Tells when a step should take its next batch: at once, or `seconds` later, so that the batch
    is large enough to be cheap.

    The step waits if at least _WORTH items are expected meanwhile, at the rate of the last
    batches. There is no wait after a full or an empty batch, so that an idle step takes new items
    at once. `per_item` limits the wait to so many seconds for each item of the last batch: at a low
    rate there is time for small batches, and no item needs to wait long.
    """

    def __init__(self, full: int, seconds: float, per_item: float = math.inf) -> None:
        self._full, self._seconds, self._per_item = full, seconds, per_item
        self._next_at = -math.inf
        self._rate, self._last_at = 0.0, time.monotonic()

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._next_at

    def note_batch(self, count: int) -> float:
        """Note that `count` items were taken, and return the seconds until the next batch is
        due."""
        now = time.monotonic()
        span, self._last_at = max(1e-3, now - self._last_at), now
        self._rate += (count / span - self._rate) * (1 - math.exp(-span / _MEMORY_SECONDS))
        if 0 < count < self._full and self._rate * self._seconds >= _WORTH:
            seconds = min(self._seconds, count * self._per_item)
            self._next_at = now + seconds
            return seconds
        self._next_at = -math.inf
        return 0.0
