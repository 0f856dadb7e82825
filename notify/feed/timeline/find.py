"""What a reader may see: what is written, and what is merged at read.

    newest ┌───────────────────────────────────────────┐
           │ written entries + authors who are merged  │
     floor ├───────────────────────────────────────────┤
           │ posts of all authors, merged              │
    oldest └───────────────────────────────────────────┘

The floor is the reader's own; for one who is inactive it is above everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from notify.feed.models import Friend
from notify.feed.timeline import entries, merge
from notify.feed.timeline.entries import Reader
from notify.feed.timeline.wanted import Wanted


@dataclass(frozen=True, slots=True)
class Found:
    """Posts, newest first."""

    posts: Sequence[int]
    reader: Reader


def newest(wanted: Wanted, limit: int) -> Found:
    """The newest `limit` posts that are wanted and may be seen."""
    # Read before the entries, so that an author whose posts are written meanwhile is found twice
    # instead of missed.
    merged = merge.sources(wanted.biz, wanted.uid, [Friend.Delivery.BOTH])
    reader, posts = entries.written(wanted, limit)
    # When entries fill the page, older merged posts are not on it.
    full = posts[-1] if len(posts) == limit else 0
    above = replace(wanted, after=max(wanted.after, reader.floor, full))
    posts = _together(posts, merge.newest(above, merged, limit), limit)
    below = replace(wanted, before=min(wanted.before, reader.floor + 1))
    if len(posts) < limit and not below.nothing:
        everybody = merge.sources(wanted.biz, wanted.uid)
        if wanted.own:
            everybody += merge.own(wanted.uid)
        more = merge.newest(below, everybody, limit - len(posts))
        posts = _together(posts, more, limit)
    return Found(posts, reader)


def _together(some: Sequence[int], others: Sequence[int], limit: int) -> list[int]:
    return sorted({*some, *others}, reverse=True)[:limit]
