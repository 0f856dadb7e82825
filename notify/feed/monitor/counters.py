"""Counters per minute, for each business system and topic.

The intake counts in the transaction that stores posts, the dispatcher in the one that handles
events, so that counters agree with posts and events. A counter's name is `<what>_<topic>`, its
subject is always 0. Events that were set aside are failures, too, until somebody resends or
acknowledges them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime

from django.db.models import Sum

from msgplatform.core.data import sql
from msgplatform.models import MinuteCounter
from msgplatform.monitor import failure_store
from msgplatform.monitor.failure_store import Loss, Rescue
from notify.feed.models import EventQueue

FLOW = "feed"
ACCEPTED = "accepted"  # posts
HANDLED = "handled"  # events
ENTRIES = "entries"  # written into timelines
MERGED = "merged"  # posts of authors who are merged at read
SET_ASIDE = "set_aside"  # events that failed
# The alert that a receiver raises as soon as it sets an event aside, with the reason.
SET_ASIDE_ALERT = "feed.set_aside"
SET_ASIDE_KEY = f"{SET_ASIDE_ALERT}:events"
NAMES = (ACCEPTED, HANDLED, ENTRIES, MERGED, SET_ASIDE)

TOPICS = EventQueue.Topic.values  # a topic's failures have its place as their subject
_EVER = datetime(1970, 1, 1, tzinfo=UTC)

Counts = Counter[tuple[int, int, str]]


def key(biz: int, what: str, topic: str) -> tuple[int, int, str]:
    """The key of a counter in `Counts`."""
    return biz, 0, name(what, topic)


def name(what: str, topic: str) -> str:
    return f"{what}_{topic}"


def add(counts: Counts, now: datetime) -> None:
    """Add to the minute of `now`, in the caller's transaction."""
    MinuteCounter.add(FLOW, counts, now)


def split(name: str) -> tuple[str, str]:
    """A counter's name as (topic, what was counted)."""
    what, _, topic = name.rpartition("_")
    return topic, what


def since(moment: datetime) -> Counter[tuple[str, str]]:
    """The sums over all systems since `moment`, by (topic, what)."""
    rows = MinuteCounter.objects.filter(minute__gte=moment, flow=FLOW)
    totals: Counter[tuple[str, str]] = Counter()
    sums = rows.values_list("name").annotate(Sum("value")).order_by()
    totals.update({split(name): value for name, value in sums})
    return totals


def failure_answer(reason: str) -> str:
    """The class of an event's error."""
    return reason.partition(":")[0]


def count_failure(qid: int, topic: str, reason: str) -> None:
    """Count an event that was set aside, in the caller's transaction."""
    loss = Loss(TOPICS.index(topic), failure_answer(reason), qid, reason)
    # The time at which an event was set aside is not kept: `take_back_failures` goes by when it was
    # made.
    failure_store.add(FLOW, [loss], sql.now(), ended_since=_EVER)


def take_back_failures(events: Iterable[EventQueue]) -> None:
    """Remove these events, which are set aside and locked, from the failures: they are replayed or
    end."""
    failure_store.take_back(
        FLOW,
        [Rescue(TOPICS.index(e.topic), failure_answer(e.reason), e.create_date) for e in events],
    )
