"""Failures: events that were set aside, by topic and error, until a person replays or acknowledges
them. `conditions.py` shows the failures."""

from collections.abc import Iterable
from datetime import UTC, datetime

from msgplatform.monitor import failure_store
from msgplatform.monitor.failure_store import Loss, Rescue
from notify.feed.models import EventQueue
from notify.feed.monitor.counters import FLOW

# A receiver raises this alert, with the reason, when it sets an event aside.
SET_ASIDE = "feed.set_aside"
SET_ASIDE_KEY = f"{SET_ASIDE}:events"
TOPICS = EventQueue.Topic.values  # a topic's place is the subject of its failures
_EVER = datetime(1970, 1, 1, tzinfo=UTC)


def add(qid: int, topic: str, reason: str, now: datetime) -> None:
    """Count an event that was set aside at `now`, in the caller's transaction."""
    loss = Loss(TOPICS.index(topic), answer(reason), qid, reason)
    # `take_back` has only the time of creation of events that an earlier release set aside.
    failure_store.add(FLOW, [loss], now, ended_since=_EVER)


def take_back(events: Iterable[EventQueue]) -> None:
    """Remove these set-aside, locked events from the counts: they are replayed or end."""
    rescues = [
        Rescue(TOPICS.index(e.topic), answer(e.reason), e.handle_date or e.create_date)
        for e in events
    ]
    failure_store.take_back(FLOW, rescues)


def answer(reason: str) -> str:
    """The class of an event's error."""
    return reason.partition(":")[0]
