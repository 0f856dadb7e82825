"""What is counted per minute, for each business system and topic.

Counted by the dispatcher, in the transaction that handles events, by the database's clock. A
counter's name is `<what>_<topic>`, its subject is always 0.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from msgplatform.models import MinuteCounter

FLOW = "feed"
HANDLED = "handled"  # events
ENTRIES = "entries"  # written into timelines
MERGED = "merged"  # posts of authors who are merged at read
SET_ASIDE = "set_aside"  # events that failed

Counts = Counter[tuple[int, int, str]]


def key(biz: int, what: str, topic: str) -> tuple[int, int, str]:
    """Of one counter in `Counts`."""
    return biz, 0, f"{what}_{topic}"


def add(counts: Counts, now: datetime) -> None:
    """Add to the minute of `now`, in the caller's transaction."""
    MinuteCounter.add(FLOW, counts, now)
