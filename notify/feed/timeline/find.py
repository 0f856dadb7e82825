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

# Posts of authors merged at read that a page looks at, give or take one look at each author.
MOST = 20_000


@dataclass(frozen=True, slots=True)
class Found:
    """Posts, newest first. When fewer than the limit were found after looking at so many, what is
    older than `reached` was not looked at; 0: everything was."""

    posts: Sequence[int]
    reader: Reader
    reached: int = 0


def newest(wanted: Wanted, limit: int) -> Found:
    """The newest `limit` posts that are wanted and may be seen."""
    # Read before the entries, so that an author whose posts are written meanwhile is found twice
    # instead of missed.
    merged = merge.sources(wanted.biz, wanted.uid, [Friend.Delivery.BOTH])
    reader, posts = entries.written(wanted, limit)
    # When entries fill the page, older merged posts are not on it.
    full = posts[-1] if len(posts) == limit else 0
    above = replace(wanted, after=max(wanted.after, reader.floor, full))
    more = merge.newest(above, merged, limit, MOST)
    posts = _together(posts, more, limit)
    below = replace(wanted, before=min(wanted.before, reader.floor + 1))
    if len(posts) < limit and not more.reached and not below.nothing:
        everybody = merge.sources(wanted.biz, wanted.uid)
        if wanted.own:
            everybody += merge.own(wanted.uid)
        more = merge.newest(below, everybody, limit - len(posts), MOST)
        posts = _together(posts, more, limit)
    return Found(posts, reader, more.reached)


def _together(some: Sequence[int], others: merge.Merged, limit: int) -> list[int]:
    both = sorted({*some, *others.posts}, reverse=True)
    return [post for post in both if post >= others.reached][:limit]
