"""Batches that are worth their price: under load a step waits a moment for a full one."""

from __future__ import annotations

import time


class Gather:
    """When to take the next batch: at once after a full one or none, else `seconds` later.

    What comes to an idle step is taken at once; only what follows it waits for company.
    """

    def __init__(self, full: int, seconds: float) -> None:
        self._full, self._seconds = full, seconds
        self._next = 0.0

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._next

    def took(self, count: int) -> None:
        self._next = time.monotonic() + self._seconds if 0 < count < self._full else 0.0
