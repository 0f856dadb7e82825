"""A reader's timeline: pages, visits, and the count of unread posts, for the API and the console.

The newest posts are the written entries and the posts merged at read:

    newest ┌───────────────────────────────────────────┐
           │ written entries + authors who are merged  │
     floor ├───────────────────────────────────────────┤
           │ posts of all authors, merged              │
    oldest └───────────────────────────────────────────┘

The floor is the reader's own; the floor of an inactive reader is above everything.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial

import msgspec
from django.db import connection, transaction
from django.db.models import Q

from msgplatform.core import logging
from msgplatform.core.data import engines, ids, sql, transactions
from msgplatform.core.errors import UNAVAILABLE
from notify.feed import merge
from notify.feed.merge import NEWEST, NewestPosts, Parameters, TimelineQuery
from notify.feed.models import EventQueue, Feed, FeedUser, Friend
from notify.feed.models.events import UpkeepEvent, add_upkeep
from notify.feed.models.posts import Topic
from notify.feed.models.users import FOLLOW, FRIEND, NOTHING_WRITTEN, POST_RELATIONS
from notify.feed.users import lock

log = logging.get(__name__)
MAX_UNREAD = 1000  # counting stops here
VISIT_SECONDS = 3600
# Posts of authors merged at read that a page looks at, plus at most one look at each author.
MAX_MERGED = 20_000
_VISIBLE = "(f.uid = b.fri_uid OR friendship.uid IS NOT NULL OR follow.uid IS NOT NULL)"


class Post(msgspec.Struct, frozen=True):
    """A post for a reader. `uid`: the author. Times are aware, UTC."""

    id: int
    uid: str
    topic: str
    app_id: str
    src_type: str
    data: str
    create_date: datetime
    update_date: datetime | None


class Page(msgspec.Struct, frozen=True):
    """Posts, newest first; `next` is the `before` of the next page, None on the last page. A page
    before the last may be short or empty, when MAX_MERGED posts were looked at in vain."""

    posts: Sequence[Post]
    next: int | None


class Reader(msgspec.Struct, frozen=True):
    """The timeline is written above `floor`; `is_visit_due`: True if a visit has to be noted."""

    is_active: bool = False
    floor: int = NOTHING_WRITTEN
    is_visit_due: bool = True


_COLUMNS = Post.__struct_fields__


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
    query = TimelineQuery(biz, uid, 0, NEWEST if before is None else before, app_id, src_type)
    reader, newest = newest_posts(query, limit + 1)
    page_ids = newest.post_ids[:limit]
    rows = {
        row[0]: Post(*row)
        for row in Feed.objects.filter(pk__in=page_ids, delete_date=None).values_list(*_COLUMNS)
    }
    if visit and before is None:
        _note_visit(biz, uid, reader)
    has_more = len(newest.post_ids) > limit
    # A post that was deleted meanwhile is missing. The next page begins after the last id anyway.
    next_before = page_ids[-1] if has_more else newest.complete_to or None
    return Page([rows[id] for id in page_ids if id in rows], next_before)


# -- visits ----------------------------------------------------------------------------------------
def _note_visit(biz: int, uid: str, reader: Reader) -> None:
    """Note a visit, for an active reader at most once an hour. From a reader's first visit on posts
    are written into the timeline.

    A visit that cannot be noted does not fail this page, and is noted with the next page.
    """
    if reader.is_active and not reader.is_visit_due:
        return
    try:
        block = ids.reserve(1)
        note = _note_hour if reader.is_active else _activate
        transactions.retrying(partial(note, biz, uid, block))
    except UNAVAILABLE as error:
        log.warning("visit_not_noted", biz=biz, why=str(error)[:200])


def _activate(biz: int, uid: str, block: ids.Block) -> None:
    """Make the reader active; a backfill writes the posts of the time before."""
    with transaction.atomic(durable=True):
        if lock(biz, [uid])[uid].active:
            return  # another page of the same reader was quicker
        now = sql.now()
        FeedUser.objects.filter(biz_id=biz, uid=uid).update(active=True, visit_date=now)
        # This commits before the backfill reads posts, so that each later post is written by its
        # own event.
        relations = Friend.objects.filter(biz_id=biz, fri_uid=uid, relation__in=POST_RELATIONS)
        relations.exclude(delivery=Friend.Delivery.BOTH).update(delivery=Friend.Delivery.BOTH)
        add_upkeep([UpkeepEvent(biz, uid, EventQueue.Kind.BACKFILL)], block, now)


def _note_hour(biz: int, uid: str, block: ids.Block) -> None:
    """Note the visit of an active reader. A backfill then writes the posts of authors who were
    merged, with very many recipients, and are pushed again."""
    has_authors_to_write = bool(merge.authors_to_write(biz, uid, 1))
    with transaction.atomic(durable=True):
        now = sql.now()
        hour_ago = now - timedelta(seconds=VISIT_SECONDS)
        # Only one of several pages at the same time changes the row and adds the event.
        rows = FeedUser.objects.filter(
            Q(visit_date=None) | Q(visit_date__lt=hour_ago), biz_id=biz, uid=uid, active=True
        )
        if rows.update(visit_date=now) and has_authors_to_write:
            add_upkeep([UpkeepEvent(biz, uid, EventQueue.Kind.BACKFILL)], block, now)


# -- unread posts ----------------------------------------------------------------------------------
# Ids are in the order of posting, so a reader's state is one id: the newest post that was read.
class Unread(msgspec.Struct, frozen=True):
    """The count of unread posts; `has_more`: True if there may be more than `count`."""

    count: int
    has_more: bool


def count_unread(biz: int, uid: str) -> Unread:
    """Count visible posts of others that are newer than the last post that the user has read."""
    rows = FeedUser.objects.filter(biz_id=biz, uid=uid)
    read_id = rows.values_list("read_id", flat=True).first()
    query = TimelineQuery(biz, uid, after=read_id or 0, has_own=False)
    _reader, newest = newest_posts(query, MAX_UNREAD + 1)
    count = len(newest.post_ids)
    return Unread(min(count, MAX_UNREAD), count > MAX_UNREAD or newest.complete_to > 0)


def mark_read(biz: int, uid: str, up_to: int) -> None:
    """Note that posts up to this id are read. An id below an earlier one changes nothing."""
    rows = FeedUser.objects.filter(biz_id=biz, uid=uid)

    def move() -> int:
        return rows.filter(read_id__lt=up_to).update(read_id=up_to)

    # Nearly every reader has a row, so a row is inserted only when the UPDATE finds no row.
    if not transactions.retrying(move) and not rows.exists():
        transactions.retrying(
            lambda: sql.insert_or_keep(FeedUser._meta.db_table, ("biz_id", "uid"), [(biz, uid)])
        )
        transactions.retrying(move)


# -- the newest posts ------------------------------------------------------------------------------
def newest_posts(query: TimelineQuery, limit: int) -> tuple[Reader, NewestPosts]:
    """The reader, and the newest `limit` posts that fit the query and that the reader may see:
    fewer after MAX_MERGED posts that did not fit."""
    # Sources are read before the entries, so that posts that are written meanwhile are found twice
    # instead of missed.
    merged_sources = merge.sources(query.biz, query.uid, [Friend.Delivery.BOTH])
    reader, post_ids = _find_written(query, limit)
    # When entries fill the page, older merged posts are not on it.
    last = post_ids[-1] if len(post_ids) == limit else 0
    above = msgspec.structs.replace(query, after=max(query.after, reader.floor, last))
    read_posts = merge.newest(above, merged_sources, limit, MAX_MERGED)
    post_ids = _join(post_ids, read_posts, limit)
    below = msgspec.structs.replace(query, before=min(query.before, reader.floor + 1))
    if len(post_ids) < limit and not read_posts.complete_to and not below.is_empty:
        all_sources = merge.sources(query.biz, query.uid)
        if query.has_own:
            all_sources += merge.own_sources(query.uid)
        read_posts = merge.newest(below, all_sources, limit - len(post_ids), MAX_MERGED)
        post_ids = _join(post_ids, read_posts, limit)
    return reader, NewestPosts(post_ids, read_posts.complete_to)


def _join(post_ids: Sequence[int], read_posts: NewestPosts, limit: int) -> list[int]:
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
    friendship = join.format(name="friendship", relation=FRIEND)
    follow = join.format(name="follow", relation=FOLLOW)
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
