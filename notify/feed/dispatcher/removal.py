"""Delete entries that their readers may no longer see. Readers do not wait for it: each read asks
which posts it may show."""

from __future__ import annotations

import json

from django.db import connection

from msgplatform.core.data import sql
from msgplatform.core.data.chunks import chunks
from notify.feed import users
from notify.feed.dispatcher.fanout import ALL_RELATIONS, next_slice
from notify.feed.dispatcher.queue import Event
from notify.feed.models import FeedBroadcast, Friend
from notify.feed.models.posts import Topic

MOST = 5_000  # entries, or recipients, in one transaction
_CHUNK = 500


def unfollow(event: Event) -> bool:
    """Delete an author's entries from the timeline of somebody who no longer receives them; whether
    none is left."""
    reader = json.loads(event.data)["reader"]
    # Locked, so that a relation that is made again meanwhile waits: its backfill comes after this.
    users.lock(event.biz, [reader])
    left = Friend.objects.filter(
        biz_id=event.biz, uid=event.uid, fri_uid=reader, relation__in=ALL_RELATIONS
    )
    relations = set(left.values_list("relation", flat=True))
    if Friend.Relation.FRIEND in relations:
        return True
    # Who still follows keeps the posts for followers.
    topics = [Topic.FRIEND] if relations else list(Topic)
    places = ", ".join(["%s"] * len(topics))
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT b.feed_id FROM feed_broadcast b {sql.ordered_join()} feed f "  # noqa: S608
            "ON f.id = b.feed_id "
            f"WHERE b.biz_id = %s AND b.fri_uid = %s AND f.uid = %s AND f.topic IN ({places}) "
            f"ORDER BY b.feed_id DESC LIMIT {MOST}",
            [event.biz, reader, event.uid, *map(str, topics)],
        )
        found = [row[0] for row in cursor.fetchall()]
    for some in chunks(found, _CHUNK):
        FeedBroadcast.objects.filter(biz_id=event.biz, fri_uid=reader, feed_id__in=some).delete()
    return len(found) < MOST


def delete(event: Event, size: int) -> str | None:
    """Delete a deleted post from the timelines of `size` recipients; where to go on, None at the
    end."""
    post = int(json.loads(event.data)["feed"])
    part = next_slice(event, ALL_RELATIONS, size)
    recipients = Friend.objects.filter(
        biz_id=event.biz, uid=event.uid, relation=part.relation, fri_uid__gt=part.after
    )
    if part.until is not None:
        recipients = recipients.filter(fri_uid__lte=part.until)
    # Authors have an entry of their own.
    readers = [event.uid, *recipients.values_list("fri_uid", flat=True)]
    for some in chunks(readers, _CHUNK):
        FeedBroadcast.objects.filter(biz_id=event.biz, fri_uid__in=some, feed_id=post).delete()
    return part.position
