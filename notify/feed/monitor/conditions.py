"""Conditions that need a person: as alerts and as findings of `doctor`.

The daemon that holds the platform's watch asks for them, whatever its flow: dead dispatchers are
reported, too.
"""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings
from django.utils.translation import gettext_noop as _

from msgplatform.core.alerts import Condition
from msgplatform.core.data import sql
from msgplatform.core.flows.health import Finding
from msgplatform.core.lazy_text import lazy_message
from notify.feed.monitor import backlog, failures
from notify.feed.monitor.counters import SET_ASIDE_ALERT, SET_ASIDE_KEY

LATE = "feed.late"
KINDS = SET_ASIDE_ALERT, LATE


def conditions() -> Iterator[Condition]:
    """A condition for each alert of KINDS that holds now. Raises OperationalError."""
    # Events that were set aside and neither replayed, dismissed nor acknowledged.
    counts = failures.of_topics()
    if counts:
        topics = ", ".join(f"{topic} {count}" for topic, count in counts.items())
        yield Condition(
            SET_ASIDE_KEY,
            lazy_message(_("Feed: events were set aside: %(which)s"), which=topics),
            lazy_message(
                _(
                    "Their posts or changes do not reach all timelines. Read their reasons in the "
                    "console, remove the cause, and replay them there."
                )
            ),
        )
    for topic, age in backlog.oldest(sql.now()).items():
        if age > settings.FEED_LATE_SECONDS:
            yield Condition(
                f"{LATE}:{topic}",
                lazy_message(
                    _("Feed: events of topic %(topic)s have waited for long"), topic=topic
                ),
                lazy_message(
                    _(
                        "The oldest has waited for %(seconds)d seconds. Look at the scheduler in "
                        "the console: if it gives way to others, the database needs rest or more "
                        "capacity; if not, start more run_feed_dispatcher."
                    ),
                    seconds=round(age),
                ),
            )


def examine() -> Iterator[Finding]:
    """Findings of `doctor`; the platform reports failures. May raise errors of the database."""
    ages = backlog.oldest(sql.now())
    late = {topic: age for topic, age in ages.items() if age > settings.FEED_LATE_SECONDS}
    for topic, age in late.items():
        yield Finding(
            "warn", f"Feed: the oldest event of topic {topic} has waited for {age:.0f} seconds",
            "manage.py run_feed_dispatcher",
        )  # fmt: skip
    if not late:
        yield Finding("ok", "Feed: no event has waited for long")
