"""The receiver of upkeep: timelines follow what became of relations and posts."""

from __future__ import annotations

from notify.feed.dispatcher.pace import Pace
from notify.feed.models import EventQueue


class Upkeep:
    topic = str(EventQueue.Topic.UPKEEP)

    def turn(self, pace: Pace) -> int:
        return 0
