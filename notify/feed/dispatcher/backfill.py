"""Backfill: write what was posted before a relation began, or before its reader came.

A post is stored before its event is handled, and a relation before its backfill looks for posts.
So each post is written either by its own event, which finds the relation, or by the backfill, which
finds the post.
"""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.db import connection

from msgplatform.core.data import ids, sql
from msgplatform.core.data.chunks import chunks
from notify.feed import users
from notify.feed.dispatcher.fanout import ALL_RELATIONS
from notify.feed.dispatcher.queue import Event
from notify.feed.models import FeedUser, Friend
from notify.feed.models.users import NOTHING_WRITTEN
from notify.feed.timeline import merge
from notify.feed.timeline.wanted import Wanted

AUTHORS = 500  # and their relations, in one transaction
_CHUNK = 500


def backfill(event: Event) -> tuple[bool, int]:
    """Write posts of authors who are merged for this reader only because they are new.

    Whether no such authors are left, and how many posts were written.
    """
    biz, uid = event.biz, event.uid
    candidates = merge.to_be_written(biz, uid, AUTHORS)
    # The authors are locked too: one who became merged meanwhile must not be written.
    reader, pushed = users.lock_with_authors(biz, uid, candidates)
    if reader is None or not reader.active:
        return True, 0
    rows = Friend.objects.filter(
        biz_id=biz, fri_uid=uid, delivery=Friend.Delivery.BOTH, relation__in=ALL_RELATIONS
    ).filter(uid__in=pushed)
    relations = list(rows.values_list("uid", "relation"))
    rebuild = reader.floor == NOTHING_WRITTEN
    if not relations and not rebuild:
        return not candidates, 0
    sources = merge.of_relations(relations) + (merge.own(uid) if rebuild else [])
    limit = settings.FEED_REBUILD_LENGTH if rebuild else settings.FEED_TIMELINE_LENGTH
    floor = 0 if rebuild else reader.floor
    posts = merge.newest(Wanted(biz, uid, after=floor), sources, limit + 1).posts
    oldest = oldest_kept()
    fresh = [post for post in posts[:limit] if post > oldest]
    if len(fresh) < len(posts):
        # The newest one that is not written: from here down the timeline is merged at read.
        floor = posts[len(fresh)]
    written = _write(biz, uid, fresh)
    rows.update(delivery=Friend.Delivery.PUSHED)
    FeedUser.objects.filter(biz_id=biz, uid=uid).update(floor=floor)
    return len(candidates) < AUTHORS, written


def oldest_kept() -> int:
    """The cleaner may delete entries of posts below this id at any moment."""
    days = settings.FEED_KEEP_ENTRY_DAYS
    return ids.first_id_at(sql.now() - timedelta(days=days)) if days else 0


def _write(biz: int, uid: str, posts: list[int]) -> int:
    insert = (
        "INSERT INTO feed_broadcast (biz_id, fri_uid, feed_id, create_date, app_id, src_type) "
        "SELECT f.biz_id, %s, f.id, f.create_date, f.app_id, f.src_type FROM feed f "
        "WHERE f.biz_id = %s AND f.id IN ({})"
    )
    for some in chunks(posts, _CHUNK):
        statement = insert.format(", ".join(["%s"] * len(some)))
        with connection.cursor() as cursor:
            cursor.execute(
                sql.keep_existing(statement, "feed_broadcast", "feed_id"), [uid, biz, *some]
            )
    return len(posts)
