"""The newest posts of a timeline: the written entries and the posts merged at read.

    newest ┌───────────────────────────────────────────┐
           │ written entries + authors who are merged  │
     floor ├───────────────────────────────────────────┤
           │ posts of all authors, merged              │
    oldest └───────────────────────────────────────────┘

The floor is the reader's own; the floor of an inactive reader is above everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from django.db import connection

from msgplatform.core.data import engines, sql
from notify.feed.models import Friend
from notify.feed.models.posts import Topic
from notify.feed.models.users import NOTHING_WRITTEN
from notify.feed.timeline import merge
from notify.feed.timeline.merge import MergedPosts, Parameters, TimelineQuery

VISIT_SECONDS = 3600
# Posts of authors merged at read that a page looks at, plus at most one look at each author.
MAX_MERGED = 20_000
_VISIBLE = "(f.uid = b.fri_uid OR friendship.uid IS NOT NULL OR follow.uid IS NOT NULL)"


@dataclass(frozen=True, slots=True)
class Reader:
    """The timeline is written above `floor`; `is_visit_due`: True if a visit has to be noted."""

    is_active: bool = False
    floor: int = NOTHING_WRITTEN
    is_visit_due: bool = True


@dataclass(frozen=True, slots=True)
class NewestPosts:
    """Ids of posts, newest first. All posts from the id `complete_to` on were looked at; 0: all.
    There may be fewer posts than the limit after MAX_MERGED posts that did not fit."""

    post_ids: Sequence[int]
    reader: Reader
    complete_to: int = 0


def newest(query: TimelineQuery, limit: int) -> NewestPosts:
    """The newest `limit` posts that fit the query and that its user may see."""
    # Sources are read before the entries, so that posts that are written meanwhile are found twice
    # instead of missed.
    merged_sources = merge.sources(query.biz, query.uid, [Friend.Delivery.BOTH])
    reader, post_ids = _find_written(query, limit)
    # When entries fill the page, older merged posts are not on it.
    last = post_ids[-1] if len(post_ids) == limit else 0
    above = replace(query, after=max(query.after, reader.floor, last))
    read_posts = merge.newest(above, merged_sources, limit, MAX_MERGED)
    post_ids = _join(post_ids, read_posts, limit)
    below = replace(query, before=min(query.before, reader.floor + 1))
    if len(post_ids) < limit and not read_posts.complete_to and not below.is_empty:
        all_sources = merge.sources(query.biz, query.uid)
        if query.has_own:
            all_sources += merge.own(query.uid)
        read_posts = merge.newest(below, all_sources, limit - len(post_ids), MAX_MERGED)
        post_ids = _join(post_ids, read_posts, limit)
    return NewestPosts(post_ids, reader, read_posts.complete_to)


def _join(post_ids: Sequence[int], read_posts: MergedPosts, limit: int) -> list[int]:
    newest_first = sorted({*post_ids, *read_posts.post_ids}, reverse=True)
    return [post for post in newest_first if post >= read_posts.complete_to][:limit]


def _find_written(query: TimelineQuery, limit: int) -> tuple[Reader, list[int]]:
    """The reader, and the newest posts that are written above the floor, newest first.

    One statement, because between two the cleaner could raise the floor and delete entries.
    """
    conditions, parameters = query.conditions()
    floor = "(SELECT floor FROM feed_user WHERE biz_id = %s AND uid = %s)"
    not_own = "" if query.has_own else "AND f.uid <> b.fri_uid "
    # An entry may outlive the relation, so relations are joined by primary key. For an EXISTS
    # MariaDB would make a list of all relations.
    engine = engines.of()
    force = engine.force_index("PRIMARY")
    join = (
        f"LEFT JOIN friend {{name}} {force} ON {{name}}.biz_id = b.biz_id "
        "AND {name}.uid = f.uid AND {name}.relation = '{relation}' AND {name}.fri_uid = b.fri_uid "
    )
    friendship = join.format(name="friendship", relation=Friend.Relation.FRIEND.value)
    follow = join.format(name="follow", relation=Friend.Relation.FOLLOW.value)
    statement = (
        f"SELECT u.active, u.floor, u.visit_date IS NULL OR u.visit_date < "  # noqa: S608
        f"{sql.now_sql(-VISIT_SECONDS)}, e.feed_id FROM feed_user u LEFT JOIN ("
        f"SELECT b.feed_id FROM feed_broadcast b {engine.ordered_join} feed f ON f.id = b.feed_id "
        f"{friendship} {follow} AND f.topic = '{Topic.VIP.value}' "
        f"WHERE b.biz_id = %s AND b.fri_uid = %s AND b.feed_id < %s AND b.feed_id > %s "
        f"AND b.feed_id > {floor} AND {conditions} {not_own} AND {_VISIBLE} "
        "ORDER BY b.feed_id DESC LIMIT %s) e ON 1 = 1 WHERE u.biz_id = %s AND u.uid = %s"
    )
    user: Parameters = [query.biz, query.uid]
    with connection.cursor() as cursor:
        cursor.execute(
            statement, [*user, query.before, query.after, *user, *parameters, limit, *user]
        )
        rows = cursor.fetchall()
    # A user without entries is one row without a post (LEFT JOIN); an unknown user has no row.
    if not rows:
        return Reader(), []
    is_active, floor_now, is_due, _ = rows[0]
    post_ids = sorted((row[3] for row in rows if row[3] is not None), reverse=True)
    return Reader(bool(is_active), floor_now, bool(is_due)), post_ids
