"""What needs a person as long as it holds; looked up every few seconds by each dispatcher."""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings

from msgplatform.core import alerts
from msgplatform.core.alerts import Condition
from msgplatform.core.data import sql
from notify.feed.models import EventQueue
from notify.feed.monitor import backlog

SET_ASIDE, LATE = "feed.set_aside", "feed.late"
# A receiver raises it with the event's reason as soon as it sets one aside.
SET_ASIDE_KEY = f"{SET_ASIDE}:events"
EVERY_SECONDS = 10.0
_COUNTED = 1000


def reconcile() -> None:
    """Raise what holds, resolve what is over. Raises OperationalError."""
    alerts.reconcile([SET_ASIDE], _set_aside())
    alerts.reconcile([LATE], _late())


def _set_aside() -> Iterator[Condition]:
    found = backlog.waiting(_COUNTED, [EventQueue.Status.SET_ASIDE])
    if any(found.values()):
        shown = ", ".join(f"{topic} {count}" for (topic, _), count in found.items() if count)
        yield Condition(
            SET_ASIDE_KEY,
            f"Feed: events were set aside: {shown}",
            "Their posts or changes do not reach all timelines. See their reasons in the console, "
            "remove the cause, and replay them there.",
        )


def _late() -> Iterator[Condition]:
    for topic, age in backlog.oldest(sql.now()).items():
        if age > settings.FEED_LATE_SECONDS:
            yield Condition(
                f"{LATE}:{topic}",
                f"Feed: events of topic {topic} wait for long",
                f"The oldest has waited for {age:.0f} seconds. Look at the scheduler in the "
                "console: if it gives way to others, the database needs rest or room; if not, "
                "start more run_feed_dispatcher.",
            )
