"""A timer for what a loop does only now and then."""

from __future__ import annotations

import math
import time
from collections.abc import Callable


class Every:
    """Due at once the first time, and again each time `seconds` have passed since `restart`.

    Not a thread: the owner's loop asks. `clock` gives seconds that do not go back.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._next = -math.inf

    @property
    def is_due(self) -> bool:
        return self._clock() >= self._next

    def take(self) -> bool:
        """Whether it is due; if so, it restarts."""
        due = self.is_due
        if due:
            self.restart()
        return due

    def restart(self) -> None:
        """Due again `seconds` from now."""
        self._next = self._clock() + self._seconds

    def at_once(self) -> None:
        """Due now."""
        self._next = -math.inf
