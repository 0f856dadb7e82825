"""What `doctor` says of Feed."""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings

from msgplatform.core.data import sql
from msgplatform.core.flows import Finding
from notify.feed.models import EventQueue
from notify.feed.monitor import backlog

_COUNTED = 1000


def examine() -> Iterator[Finding]:
    """May raise errors of the database."""
    ages = backlog.oldest(sql.now())
    late = {topic: age for topic, age in ages.items() if age > settings.FEED_LATE_SECONDS}
    for topic, age in late.items():
        yield Finding(
            "warn", f"Feed: the oldest event of topic {topic} has waited for {age:.0f} seconds",
            "manage.py run_feed_dispatcher",
        )  # fmt: skip
    if not late:
        yield Finding("ok", "Feed: no event waits for long")
    aside = sum(backlog.waiting(_COUNTED, [EventQueue.Status.SET_ASIDE]).values())
    if aside:
        yield Finding(
            "bad", f"Feed: events set aside: {aside}{' or more' if aside >= _COUNTED else ''}",
            "see their reasons in the console, and replay them there",
        )  # fmt: skip
