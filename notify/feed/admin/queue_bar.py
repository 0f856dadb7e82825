"""What is in the queue of each topic, as the bar above the list of events shows it."""

from __future__ import annotations

from dataclasses import dataclass

from msgplatform.core.data import ids, sql
from notify.feed.models import EventQueue

_STATUS = EventQueue.Status
_OPEN = (_STATUS.WAITING, _STATUS.IN_SLICES)
COUNTED = 10_000  # counted no further: a backlog may be a million


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


def lines(late_after: float) -> list[Line]:
    """One for each topic; late: the oldest event waits longer than `late_after` seconds."""
    now = sql.now()
    found = []
    for topic in EventQueue.Topic:
        oldest = min(filter(None, (_oldest(topic, status) for status in _OPEN)), default=None)
        age = max(0.0, (now - ids.datetime_of(oldest)).total_seconds()) if oldest else None
        found.append(
            Line(
                topic=str(topic),
                title=str(topic.label),
                waiting=_count(topic, _STATUS.WAITING),
                in_slices=_count(topic, _STATUS.IN_SLICES),
                set_aside=_count(topic, _STATUS.SET_ASIDE),
                oldest_seconds=age,
                is_late=age is not None and age > late_after,
            )
        )
    return found


def _oldest(topic: str, status: int) -> int | None:
    rows = EventQueue.objects.filter(topic=topic, status=status).order_by("qid")
    return rows.values_list("qid", flat=True).first()


def _count(topic: str, status: int) -> str:
    rows = EventQueue.objects.filter(topic=topic, status=status).order_by()
    count = rows[: COUNTED + 1].count()
    return f"{COUNTED}+" if count > COUNTED else str(count)
