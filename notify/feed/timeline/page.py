"""A page of a timeline: ids from `find`, then the posts as they are now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from notify.feed.models import Feed
from notify.feed.timeline import find, visits
from notify.feed.timeline.wanted import NEWEST, Wanted


@dataclass(frozen=True, slots=True)
class Post:
    """A post as a reader sees it; `uid` is its author. Times are aware, UTC."""

    id: int
    uid: str
    topic: str
    app_id: str
    src_type: str
    data: str
    create_date: datetime
    update_date: datetime | None


@dataclass(frozen=True, slots=True)
class Page:
    """Newest first; `next` is the `before` of the next page, None on the last one. A page with a
    next one may be short, or empty, when so many posts were looked at in vain."""

    posts: Sequence[Post]
    next: int | None


_COLUMNS = Post.__slots__


def read(
    biz: int,
    uid: str,
    before: int | None = None,
    limit: int = 20,
    app_id: str = "",
    src_type: str = "",
    visit: bool = True,
) -> Page:
    """The newest `limit` posts with ids below `before` that this user may see.

    The first page is a visit, unless `visit` says otherwise: from then on, posts are written into
    this timeline. Must not run inside a transaction of the caller.
    """
    wanted = Wanted(biz, uid, 0, NEWEST if before is None else before, app_id, src_type)
    found = find.newest(wanted, limit + 1)
    ids = found.posts[:limit]
    rows = {
        row[0]: Post(*row)
        for row in Feed.objects.filter(pk__in=ids, delete_date=None).values_list(*_COLUMNS)
    }
    if visit and before is None:
        visits.note(biz, uid, found)
    more = len(found.posts) > limit
    # A post that was deleted meanwhile is missing; the next page begins where this one ends anyway.
    following = ids[-1] if more else found.reached or None
    return Page([rows[id] for id in ids if id in rows], following)
