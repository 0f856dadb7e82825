"""Is it time again? For what a loop does now and then."""

from __future__ import annotations

import math
import time
from collections.abc import Callable


class Every:
    """What is done every `seconds`: due at once the first time, then when they are over.

    Not a thread: its owner's loop asks. `clock` gives seconds that do not go back.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._next = -math.inf

    @property
    def is_due(self) -> bool:
        return self._clock() >= self._next

    def take(self) -> bool:
        """Whether it is due; if so, the seconds begin again."""
        due = self.is_due
        if due:
            self.restart()
        return due

    def restart(self) -> None:
        """Due again when its seconds are over, from now on."""
        self._next = self._clock() + self._seconds

    def at_once(self) -> None:
        """Due now, whatever was before."""
        self._next = -math.inf
