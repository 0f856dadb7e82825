"""The receiver of upkeep: timelines follow the changes of relations and posts.

    backfill    write the posts of a new relation, or of a reader who came back
    unfollow    delete an author's entries from the timeline of a reader who no longer gets them
    delete      delete a deleted post from all timelines
    merge       let readers merge the posts of an author who has very many recipients

Each event is a transaction, and so is each slice of a large event. Every step can be repeated, so
several dispatchers may work at once. Readers do not wait for upkeep, because each read checks which
posts the reader may see.
"""

import json
import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from django.conf import settings
from django.db import connection, transaction

from msgplatform.core.daemons.bisect import isolate
from msgplatform.core.daemons.timer import Every
from msgplatform.core.data import chunks, engines, ids, sql, transactions
from msgplatform.core.failpoints import failpoint
from notify.feed import merge, users
from notify.feed.dispatcher import queue
from notify.feed.dispatcher.fanout import next_slice
from notify.feed.dispatcher.pace import Effort, Pace
from notify.feed.dispatcher.queue import Event
from notify.feed.dispatcher.receiver import SKIPPED_SECONDS
from notify.feed.merge import TimelineQuery
from notify.feed.models import EventQueue, FeedBroadcast, FeedUser, Friend
from notify.feed.models.posts import Topic
from notify.feed.models.users import NOTHING_WRITTEN, POST_RELATIONS
from notify.feed.monitor import counters

AUTHORS = 500  # in one transaction of a backfill, with their relations
MAX_ENTRIES = 5_000  # deleted in one transaction
_CHUNK = 500
_TURN_SECONDS = 0.1  # posts wait meanwhile
_KIND, _STATUS = EventQueue.Kind, EventQueue.Status


class Upkeep:
    """`turn` takes one step of each of the oldest events, until its time is over.

    An event that needs locked rows is skipped for a while, because the holder of the lock may be
    frozen, and later events must go on. Readers see no difference.
    """

    topic = str(EventQueue.Topic.UPKEEP)

    def __init__(self) -> None:
        self._skipped_ids: set[int] = set()
        self._next_forget = Every(SKIPPED_SECONDS)

    def turn(self, pace: Pace) -> int:
        """Return the number of steps taken; 0: no event waits."""
        if self._next_forget.take():
            self._skipped_ids.clear()
        until = time.monotonic() + _TURN_SECONDS
        size = max(1, round(settings.FEED_FANOUT_BATCH * pace.share))
        count = 0
        for status in EventQueue.OPEN:
            rows = EventQueue.objects.filter(topic=self.topic, status=status).order_by("qid")
            if self._skipped_ids:
                rows = rows.exclude(qid__in=self._skipped_ids)
            # All backfills of a reader are one step, because the first does the work of all.
            steps: dict[tuple[object, ...], list[int]] = {}
            for qid, kind, biz, uid in rows.values_list("qid", "kind", "biz_id", "uid")[
                : pace.events
            ]:
                step = (biz, uid) if kind == _KIND.BACKFILL else (qid,)
                steps.setdefault(step, []).append(qid)
            for qids in steps.values():
                work = partial(self._handle_locked, status, size)
                count += sum(isolate(qids, work, queue.set_aside))
                if time.monotonic() > until:
                    break
        return count

    def pause_after(self, pace: Pace, count: int, seconds: float) -> float:
        """Seconds to rest after a turn that took `seconds`."""
        # The costs of these events differ too much to be learned.
        return Effort().pause(pace.share, 0, seconds)

    def _handle_locked(self, status: int, size: int, qids: Sequence[int]) -> Sequence[int]:
        """Take a step of these events in one transaction; returns [number of locked events]."""

        def handle() -> int:
            try:
                with transactions.without_patience(), transaction.atomic(durable=True):
                    events = queue.lock_by_id(qids, status)
                    if events:
                        self._handle(events, size)
                        failpoint("feed_upkeep_before_commit")
                    else:
                        # Another dispatcher has the events. It may be frozen: later events go on.
                        self._skipped_ids.update(qids)
                    return len(events)
            except transactions.Locked:
                self._skipped_ids.update(qids)
                return 0

        return [transactions.retrying(handle)]

    def _handle(self, events: Sequence[Event], size: int) -> None:
        """Take one step of an event, or of several backfills of one reader."""
        first = events[0]
        entries, position = 0, None
        match first.kind:
            case _KIND.BACKFILL:
                is_done, entries = backfill(first)
            case _KIND.UNFOLLOW:
                is_done = delete_entries_of_author(first)
            case _KIND.DELETE:
                position = delete_entries_of_post(first, size)
                is_done = position is None
            case _KIND.MERGE:
                position = merge_author(first, size)
                is_done = position is None
            case _:
                raise ValueError(f"upkeep of the kind {first.kind!r} is not known")
        qids = [event.qid for event in events]
        now = sql.now()
        counts: counters.Counts = Counter()
        counts[counters.key(first.biz, counters.ENTRIES, self.topic)] = entries
        if is_done:
            queue.mark(qids, _STATUS.HANDLED, now)
            counts[counters.key(first.biz, counters.HANDLED, self.topic)] = len(qids)
        else:
            changes = {"status": _STATUS.IN_SLICES, "position": position or first.position}
            EventQueue.objects.filter(qid__in=qids).update(**changes)
        counters.add(counts, now)


# -- backfill --------------------------------------------------------------------------------------
# A post is stored before its event is handled, and a relation before its backfill looks for posts.
# So a post is written by its own event, which finds the relation, or by the backfill, which finds
# the post.
def backfill(event: Event) -> tuple[bool, int]:
    """Write posts of authors who are merged for this reader only because the relation is new.

    Returns (True if no such authors are left, number of posts written).
    """
    biz, uid = event.biz, event.uid
    candidates = merge.authors_to_write(biz, uid, AUTHORS)
    # The authors are locked too: posts of an author who became merged must not be written.
    reader, authors = users.lock_with_authors(biz, uid, candidates)
    if reader is None or not reader.active:
        return True, 0
    rows = Friend.objects.filter(
        biz_id=biz, fri_uid=uid, delivery=Friend.Delivery.BOTH, relation__in=POST_RELATIONS
    ).filter(uid__in=authors)
    relations = list(rows.values_list("uid", "relation"))
    is_rebuild = reader.floor == NOTHING_WRITTEN
    if not relations and not is_rebuild:
        return not candidates, 0
    sources = merge.of_relations(relations) + (merge.own_sources(uid) if is_rebuild else [])
    limit = settings.FEED_REBUILD_LENGTH if is_rebuild else settings.FEED_TIMELINE_LENGTH
    floor = 0 if is_rebuild else reader.floor
    post_ids = merge.newest(TimelineQuery(biz, uid, after=floor), sources, limit + 1).post_ids
    oldest = min_written_id()
    ids_to_write = [post for post in post_ids[:limit] if post > oldest]
    if len(ids_to_write) < len(post_ids):
        # The newest post that is not written: from its id down the timeline is merged at read.
        floor = post_ids[len(ids_to_write)]
    insert = (
        "INSERT INTO feed_broadcast (biz_id, fri_uid, feed_id, create_date, app_id, src_type) "
        "SELECT f.biz_id, %s, f.id, f.create_date, f.app_id, f.src_type FROM feed f "
        "WHERE f.biz_id = %s AND f.id IN ({})"
    )
    for page in chunks(ids_to_write, _CHUNK):
        statement = insert.format(", ".join(["%s"] * len(page)))
        with connection.cursor() as cursor:
            cursor.execute(
                sql.keep_existing(statement, "feed_broadcast", "feed_id"), [uid, biz, *page]
            )
    rows.update(delivery=Friend.Delivery.PUSHED)
    FeedUser.objects.filter(biz_id=biz, uid=uid).update(floor=floor)
    return len(candidates) < AUTHORS, len(ids_to_write)


def min_written_id() -> int:
    """The id below which posts are too old to be written: the cleaner may delete their entries at
    any moment."""
    days = settings.FEED_KEEP_ENTRY_DAYS
    return ids.first_id_at(sql.now() - timedelta(days=days)) if days else 0


# -- entries that readers may no longer see --------------------------------------------------------
def delete_entries_of_author(event: Event) -> bool:
    """Delete an author's entries from the timeline of a reader who no longer gets them. Returns
    True if no entry is left."""
    reader = json.loads(event.data)["reader"]
    # The lock delays a new relation, so that its backfill comes after this event.
    users.lock(event.biz, [reader])
    rows = Friend.objects.filter(
        biz_id=event.biz, uid=event.uid, fri_uid=reader, relation__in=POST_RELATIONS
    )
    relations = set(rows.values_list("relation", flat=True))
    if Friend.Relation.FRIEND in relations:
        return True
    # A reader who still follows the author keeps the posts for followers.
    topics = [Topic.FRIEND] if relations else list(Topic)
    places = ", ".join(["%s"] * len(topics))
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT b.feed_id FROM feed_broadcast b {engines.of().ordered_join} feed f "  # noqa: S608
            "ON f.id = b.feed_id "
            f"WHERE b.biz_id = %s AND b.fri_uid = %s AND f.uid = %s AND f.topic IN ({places}) "
            f"ORDER BY b.feed_id DESC LIMIT {MAX_ENTRIES}",
            [event.biz, reader, event.uid, *map(str, topics)],
        )
        post_ids = [row[0] for row in cursor.fetchall()]
    for page in chunks(post_ids, _CHUNK):
        FeedBroadcast.objects.filter(biz_id=event.biz, fri_uid=reader, feed_id__in=page).delete()
    return len(post_ids) < MAX_ENTRIES


def delete_entries_of_post(event: Event, size: int) -> str | None:
    """Delete a deleted post from the timelines of `size` recipients. Returns the position of the
    next slice, None at the end.

    For an author who is merged at read the first slice without an entry is the end: the post was
    not written. A few entries may be left; no reader sees them, and the cleaner trims them.
    """
    post = int(json.loads(event.data)["feed"])
    entries = FeedBroadcast.objects.filter(biz_id=event.biz, feed_id=post)
    entries.filter(fri_uid=event.uid).delete()  # authors have an entry of their own
    part = next_slice(event, POST_RELATIONS, size)
    readers = list(part.rows(event).values_list("fri_uid", flat=True))
    count = sum(entries.filter(fri_uid__in=page).delete()[0] for page in chunks(readers, _CHUNK))
    if readers and not count:
        author = FeedUser.objects.filter(biz_id=event.biz, uid=event.uid)
        if author.filter(merging=FeedUser.Merging.MERGED).exists():
            return None
    return part.position


# -- authors with very many recipients -------------------------------------------------------------
def merge_author(event: Event, size: int) -> str | None:
    """Let `size` readers merge the posts of an author who has very many recipients. Returns the
    position of the next slice, None at the end.

    Posts are written until all readers merge. Only this event ends the state "becoming": if the
    author then has few recipients again, the author is pushed again.
    """
    author = users.lock(event.biz, [event.uid])[event.uid]
    merging = FeedUser.Merging
    if author.merging != merging.BECOMING:
        return None
    part = next_slice(event, POST_RELATIONS, size)
    part.rows(event).filter(delivery=Friend.Delivery.PUSHED).update(delivery=Friend.Delivery.BOTH)
    if part.position is None:
        has_few = author.friends + author.followers < settings.FEED_WRITE_FANOUT_BELOW
        FeedUser.objects.filter(biz_id=event.biz, uid=event.uid).update(
            merging=merging.PUSHED if has_few else merging.MERGED
        )
    return part.position
