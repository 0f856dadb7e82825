"""Pauses before the next attempt. All times are in seconds."""

import random
from collections.abc import Sequence


def add_jitter(seconds: float, jitter: float) -> float:
    """`seconds` times a random factor from 1 − jitter to 1 + jitter (jitter 0 … 1)."""
    if not jitter:
        return seconds
    return seconds * random.uniform(1 - jitter, 1 + jitter)  # noqa: S311 - no secret


def delay(attempt: int, schedule: Sequence[float], jitter: float = 0.2) -> float:
    """The pause after the `attempt`-th failure (1, 2, …): `schedule[attempt - 1]`, with jitter.

    The schedule's last entry serves every later attempt; the caller decides how many there are.
    """
    return add_jitter(schedule[min(attempt, len(schedule)) - 1], jitter)


class Backoff:
    """Growing pauses of a loop without work; call `reset()` when there is work.

    The n-th pause is min(cap, first × factor^(n − 1)), then jitter, so that processes started
    together do not stay in step: no pause is longer than cap × (1 + jitter).
    """

    def __init__(
        self, first: float = 0.1, factor: float = 1.15, cap: float = 1.0, jitter: float = 0.2
    ) -> None:
        # A pause of 0 would never grow, and a loop without pauses would use a whole core.
        if not 0 < first <= cap or factor < 1 or not 0 <= jitter <= 1:
            raise ValueError("a backoff needs 0 < first <= cap, factor >= 1 and 0 <= jitter <= 1")
        self._first, self._factor, self._cap = first, factor, cap
        self._jitter, self._pause = jitter, first

    def next(self) -> float:
        """The present pause (seconds). The following pause is longer."""
        pause = self._pause
        # Jitter is added only to the result, so that it does not change the growth of pauses.
        self._pause = min(self._cap, pause * self._factor)
        return add_jitter(pause, self._jitter)

    def reset(self) -> None:
        """Start again at the first pause."""
        self._pause = self._first
