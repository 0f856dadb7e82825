"""Counters per minute, for each business system and topic.

The intake counts in the transaction that stores posts, the dispatcher in the transaction that
handles events, so that counters agree with posts and events. A counter's name is `<what>_<topic>`,
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
NAMES = (ACCEPTED, HANDLED, ENTRIES, MERGED, SET_ASIDE)

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
