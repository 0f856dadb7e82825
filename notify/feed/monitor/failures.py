"""Events that were set aside, as the page Failures shows them: by topic and by the error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime

from django.utils.translation import gettext_noop as _

from msgplatform.core.data import sql
from msgplatform.core.flows.health import MAX_FAILURES, Failure
from msgplatform.core.flows.text import ViewLink
from msgplatform.core.lazy_text import lazy_message
from msgplatform.monitor import failure_store
from msgplatform.monitor.failure_store import Loss, Rescue
from notify.feed.models import EventQueue
from notify.feed.monitor.counters import FLOW

_TOPICS = EventQueue.Topic.values
_SET_ASIDE = str(int(EventQueue.Status.SET_ASIDE))
_EVER = datetime(1970, 1, 1, tzinfo=UTC)


def add(qid: int, topic: str, reason: str) -> None:
    """An event was set aside, in the caller's transaction."""
    loss = Loss(_TOPICS.index(topic), answer(reason), qid, reason)
    # The time at which an event was set aside is not kept: `take_back` goes by when it was made.
    failure_store.add(FLOW, [loss], sql.now(), ended_since=_EVER)


def take_back(events: Iterable[EventQueue]) -> None:
    """These events, which are set aside and locked, are replayed or end."""
    rescues = [Rescue(_TOPICS.index(e.topic), answer(e.reason), e.create_date) for e in events]
    failure_store.take_back(FLOW, rescues)


def of_topics() -> dict[str, int]:
    """The number of events of each topic that were neither replayed, dismissed nor
    acknowledged; a topic without one is left out."""
    counts: Counter[str] = Counter()
    for group in failure_store.open_groups(FLOW):
        counts[_TOPICS[group.subject]] += group.count
    return dict(sorted(counts.items()))


def answer(reason: str) -> str:
    """The class of an event's error."""
    return reason.partition(":")[0]


def failures(limit: int = MAX_FAILURES) -> list[Failure]:
    """The events that were set aside, by topic and error."""
    rows = []
    for group in failure_store.open_groups(FLOW, limit):
        topic = EventQueue.Topic(_TOPICS[group.subject])
        query = {"topic__exact": topic.value, "status__exact": _SET_ASIDE}
        rows.append(
            failure_store.as_failure(
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
