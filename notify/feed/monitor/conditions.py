"""Conditions that need a person, as alerts and as findings of `doctor`; and the events that were
set aside, for the page Failures.

The daemon that holds the platform's watch reads the conditions, whatever its flow, so that dead
dispatchers are reported too.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from django.conf import settings
from django.utils.translation import gettext_noop as _

from msgplatform import env
from msgplatform.core.alerts import Condition
from msgplatform.core.data import sql
from msgplatform.core.flows.health import MAX_FAILURES, Failure, Finding, Runbook
from msgplatform.core.flows.text import ViewLink
from msgplatform.core.lazy_text import lazy_message
from msgplatform.monitor import failure_groups
from notify.feed.models import EventQueue
from notify.feed.monitor import backlog
from notify.feed.monitor.counters import FLOW
from notify.feed.monitor.failures import SET_ASIDE, SET_ASIDE_KEY, TOPICS

LATE = "feed.late"
KINDS = SET_ASIDE, LATE
_SET_ASIDE = str(int(EventQueue.Status.SET_ASIDE))


def conditions() -> Iterator[Condition]:
    """A condition for each alert of KINDS that holds now. Raises OperationalError."""
    # Events that were set aside and neither replayed, dismissed nor acknowledged.
    counts = of_topics()
    if counts:
        topics = ", ".join(f"{topic} {count}" for topic, count in counts.items())
        yield Condition.of(
            SET_ASIDE_KEY,
            _("Feed: events were set aside: %(which)s"),
            _(
                "Their posts or changes do not reach all timelines. Read their reasons in the "
                "console, remove the cause, and replay them there."
            ),
            which=topics,
        )
    for topic, age in backlog.oldest(sql.now()).items():
        if age > settings.FEED_LATE_SECONDS:
            yield Condition.of(
                f"{LATE}:{topic}",
                _("Feed: events of topic %(topic)s have waited for long"),
                _(
                    "The oldest has waited for %(seconds)d seconds. Look at the scheduler in "
                    "the console: if it gives way to others, the database needs rest or more "
                    "capacity; if not, start more run_feed_dispatcher."
                ),
                topic=topic,
                seconds=round(age),
            )


def examine() -> Iterator[Finding]:
    """Findings of `doctor`; the platform reports failures. May raise errors of the database."""
    ages = backlog.oldest(sql.now())
    late = {topic: age for topic, age in ages.items() if age > settings.FEED_LATE_SECONDS}
    for topic, age in late.items():
        yield Finding(
            "warn", f"Feed: the oldest event of topic {topic} has waited for {age:.0f} seconds",
            f"{env.START}feed_dispatcher",
        )  # fmt: skip
    if not late:
        yield Finding("ok", "Feed: no event has waited for long")


def of_topics() -> dict[str, int]:
    """The number of events of each topic that were neither replayed, dismissed nor
    acknowledged; a topic without one is left out."""
    counts: Counter[str] = Counter()
    for group in failure_groups.open_groups(FLOW):
        counts[TOPICS[group.subject]] += group.count
    return dict(sorted(counts.items()))


def failures(limit: int = MAX_FAILURES) -> list[Failure]:
    """The events that were set aside, by topic and error."""
    rows = []
    for group in failure_groups.open_groups(FLOW, limit):
        topic = EventQueue.Topic(TOPICS[group.subject])
        query = {"topic__exact": topic.value, "status__exact": _SET_ASIDE}
        rows.append(
            failure_groups.as_failure(
                group,
                where=lazy_message("events of topic %(topic)s", topic=topic.label),
                where_page=ViewLink("admin:feed_scheduler"),
                message=str(group.sample),
                list_page=ViewLink("admin:feed_eventqueue_changelist", query=query),
                action="resend",
                filter={"topic": topic.value, "answer": group.answer},
            )
        )
    return rows


# Where to act on the alerts; `runbooks.md` beside this file says what to do.
RUNBOOKS: Mapping[str, Runbook] = {
    "feed.set_aside": Runbook("console:failures"),
    "feed.late": Runbook("admin:feed_scheduler"),
    "feed.events.retention": Runbook("admin:feed_eventqueue_changelist"),
    "feed.entries.retention": Runbook("console:overview"),
    "feed.keys.retention": Runbook("console:overview"),
}
RUNBOOK_TEXTS = Path(__file__).with_name("runbooks.md")
