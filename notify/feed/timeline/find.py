"""What a reader may see: what is written, and what is merged at read."""

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
    # Before the entries: an author whose posts are written meanwhile is found twice, not missed.
    merged = merge.sources(wanted.biz, wanted.uid, [Friend.Delivery.BOTH])
    reader, posts = entries.written(wanted, limit)
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
