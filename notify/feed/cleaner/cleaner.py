"""Cleaner: deletes what is no longer needed."""

from __future__ import annotations

from msgplatform.core.daemons.daemon import Worker


class Cleaner(Worker):
    role = "feed_cleaner"

    def turn(self) -> bool:
        return False
