"""Events that were set aside, as the page Failures shows them: by topic and by the error."""

from __future__ import annotations

from collections import Counter

from django.utils.translation import gettext_noop as _

from msgplatform.core.flows.health import MAX_FAILURES, Failure
from msgplatform.core.flows.text import ViewLink
from msgplatform.core.lazy_text import lazy_message
from msgplatform.monitor import failure_groups
from notify.feed.models import EventQueue
from notify.feed.monitor.counters import FLOW, TOPICS

_SET_ASIDE = str(int(EventQueue.Status.SET_ASIDE))


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
                where=lazy_message(_("events of topic %(topic)s"), topic=topic.label),
                where_page=ViewLink("admin:feed_scheduler"),
                message=str(group.sample),
                list_page=ViewLink("admin:feed_eventqueue_changelist", query=query),
                action="resend",
                filter={"topic": topic.value, "answer": group.answer},
            )
        )
    return rows
