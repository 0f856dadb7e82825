"""What is in the queue of each topic, as the bar above the list of events shows it."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings

from msgplatform.core.data import sql
from notify.feed.models import EventQueue
from notify.feed.monitor import backlog

_STATUS = EventQueue.Status
COUNTED = 10_000  # counting stops here: a backlog may be a million


@dataclass(frozen=True)
class Line:
    """Counts are texts: "10000+" when there are more than were counted."""

    topic: str
    title: str
    waiting: str
    in_slices: str
    set_aside: str
    oldest_seconds: float | None
    is_late: bool


def lines() -> list[Line]:
    """A line for each topic."""
    counts = backlog.waiting(COUNTED + 1)
    oldest = backlog.oldest(sql.now())

    def count(topic: str, status: int) -> str:
        found = counts[topic, status]
        return f"{COUNTED}+" if found > COUNTED else str(found)

    return [
        Line(
            topic=str(topic),
            title=str(topic.label),
            waiting=count(topic, _STATUS.WAITING),
            in_slices=count(topic, _STATUS.IN_SLICES),
            set_aside=count(topic, _STATUS.SET_ASIDE),
            oldest_seconds=oldest.get(topic),
            is_late=oldest.get(topic, 0.0) > settings.FEED_LATE_SECONDS,
        )
        for topic in EventQueue.Topic
    ]
