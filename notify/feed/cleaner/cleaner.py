"""Cleaner: deletes what is no longer needed."""

from __future__ import annotations

from msgplatform.core.daemons.daemon import Worker


class Cleaner(Worker):
    role = "feed-cleaner"

    def turn(self) -> bool:
        return False
