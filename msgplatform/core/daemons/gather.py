"""Batches that are worth their price: under load a step waits a moment for a full one."""

from __future__ import annotations

import time
from collections.abc import Callable

from msgplatform.core.daemons.timer import Every


class Gather:
    """When to take the next batch: at once after a full one or none, else `seconds` later.

    What comes to an idle step is taken at once; only what follows it waits for company.
    """

    def __init__(
        self, full: int, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._full = full
        self._next = Every(seconds, clock)

    @property
    def is_due(self) -> bool:
        return self._next.is_due

    def took(self, count: int) -> None:
        if 0 < count < self._full:
            self._next.restart()
        else:
            self._next.at_once()
