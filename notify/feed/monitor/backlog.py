"""How much waits in the queue, and for how long. What is asked here lies together in one index."""

from __future__ import annotations

from datetime import datetime

from notify.feed.models import EventQueue

# Counting stops here: a backlog that is larger takes no longer to count.
MOST = 100_000
_STATUS = EventQueue.Status
_OPEN = (_STATUS.WAITING, _STATUS.IN_SLICES)


def oldest(now: datetime) -> dict[str, float]:
    """The age in seconds of the oldest event that is not handled, by topic; a topic without one is
    left out. Events that were set aside do not count: they wait for a person."""
    ages: dict[str, float] = {}
    for topic in EventQueue.Topic.values:
        for status in _OPEN:
            rows = EventQueue.objects.filter(topic=topic, status=status).order_by("qid")
            for created in rows.values_list("create_date", flat=True)[:1]:
                age = max(0.0, (now - created).total_seconds())
                ages[topic] = max(age, ages.get(topic, 0.0))
    return ages


def waiting(most: int = MOST) -> dict[tuple[str, int], int]:
    """How many events of each (topic, status) are not handled, `most` at most for each."""
    found = {}
    for topic in EventQueue.Topic.values:
        for status in (*_OPEN, _STATUS.SET_ASIDE):
            rows = EventQueue.objects.filter(topic=topic, status=status).order_by()
            found[topic, int(status)] = rows[:most].count()
    return found
