"""The backlog of the queue: counts and ages of the oldest events, read from one index."""

from collections import Counter
from collections.abc import Collection
from datetime import datetime

from notify.feed.models import EventQueue

# Counting stops here, so that the cost is bounded. Events that were set aside pile up too, until a
# person handles them.
MAX_COUNTED = 100_000


def is_open(topics: Collection[str] = EventQueue.Topic.values) -> bool:
    """True if an event of these topics waits to be handled. Costs one short statement."""
    return EventQueue.objects.filter(topic__in=topics, status__in=EventQueue.OPEN).exists()


def oldest(now: datetime) -> dict[str, float]:
    """The age in seconds of each topic's oldest event that is not handled; a topic without one is
    left out. Events that were set aside do not count, because they wait for a person."""
    ages: dict[str, float] = {}
    if not is_open():
        return ages
    for topic in EventQueue.Topic.values:
        for status in EventQueue.OPEN:
            rows = EventQueue.objects.filter(topic=topic, status=status).order_by("qid")
            for create_date in rows.values_list("create_date", flat=True)[:1]:
                age = max(0.0, (now - create_date).total_seconds())
                ages[topic] = max(age, ages.get(topic, 0.0))
    return ages


def counts(max_count: int = MAX_COUNTED) -> Counter[tuple[str, int]]:
    """Count the events of each (topic, status) that are not handled, up to `max_count` each."""
    by_status: Counter[tuple[str, int]] = Counter()
    for topic in EventQueue.Topic.values:
        # There are as many handled events as were handled in FEED_KEEP_EVENT_HOURS.
        for status in (*EventQueue.OPEN, EventQueue.Status.SET_ASIDE):
            rows = EventQueue.objects.filter(topic=topic, status=status).order_by()
            # Count a column of the index, because on SQLite the index does not have the key.
            by_status[topic, int(status)] = rows.values("topic")[:max_count].count()
    return by_status
