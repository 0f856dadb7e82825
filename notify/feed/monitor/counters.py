"""Counters per minute, for each business system and topic.

The intake counts in the transaction that stores posts, the dispatcher in the transaction that
handles events, so that counters agree with posts and events. A counter's name is `<kind>_<topic>`,
its subject is always 0.
"""

from collections import Counter
from datetime import datetime

from django.db.models import Sum

from msgplatform.models import MinuteCounter

FLOW = "feed"
ACCEPTED = "accepted"  # posts
HANDLED = "handled"  # events
ENTRIES = "entries"  # written into timelines
MERGED = "merged"  # posts of authors who are merged at read
SET_ASIDE = "set_aside"  # events that failed
KINDS = (ACCEPTED, HANDLED, ENTRIES, MERGED, SET_ASIDE)

Counts = Counter[tuple[int, int, str]]


def key(biz: int, kind: str, topic: str) -> tuple[int, int, str]:
    """The key of a counter in `Counts`."""
    return biz, 0, counter_name(kind, topic)


def counter_name(kind: str, topic: str) -> str:
    return f"{kind}_{topic}"


def add(counts: Counts, now: datetime) -> None:
    """Add to the minute of `now`, in the caller's transaction."""
    MinuteCounter.add(FLOW, counts, now)


def split(name: str) -> tuple[str, str]:
    """A counter's name as (topic, kind)."""
    kind, _, topic = name.rpartition("_")
    return topic, kind


def since(start: datetime) -> Counter[tuple[str, str]]:
    """The sums over all systems since `start`, by (topic, kind)."""
    rows = MinuteCounter.objects.filter(minute__gte=start, flow=FLOW)
    totals: Counter[tuple[str, str]] = Counter()
    sums = rows.values_list("name").annotate(Sum("value")).order_by()
    totals.update({split(name): value for name, value in sums})
    return totals
