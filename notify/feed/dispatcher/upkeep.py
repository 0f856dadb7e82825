"""The receiver of upkeep: timelines follow what became of relations and posts.

Each event is a transaction of its own, and so is each slice of a large one. Everything can be
repeated, so several dispatchers may work at once.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from functools import partial

from django.conf import settings
from django.db import transaction

from msgplatform.core.daemons.bisect import isolate
from msgplatform.core.daemons.timer import Every
from msgplatform.core.data import sql, transactions
from msgplatform.core.failpoints import failpoint
from notify.feed import users
from notify.feed.dispatcher import queue, removal
from notify.feed.dispatcher.backfill import backfill
from notify.feed.dispatcher.fanout import ALL_RELATIONS, next_slice
from notify.feed.dispatcher.pace import Effort, Pace
from notify.feed.dispatcher.queue import Event
from notify.feed.dispatcher.receiver import SKIPPED_SECONDS
from notify.feed.models import EventQueue, FeedUser, Friend
from notify.feed.monitor import counters

_KIND, _STATUS = EventQueue.Kind, EventQueue.Status
_SECONDS = 0.1  # of a turn: posts wait meanwhile
_OPEN = (_STATUS.WAITING, _STATUS.IN_SLICES)


class Upkeep:
    """`turn` takes one step of each of the oldest events, as many as it has time for.

    An event that needs what another transaction has locked is skipped for a while: whoever holds
    the lock may be frozen, and the events behind it go on. No reader sees a difference: what they
    may see is asked with every read, whatever upkeep has done.
    """

    topic = str(EventQueue.Topic.UPKEEP)

    def __init__(self) -> None:
        self._skipped: set[int] = set()
        self._again = Every(SKIPPED_SECONDS)

    def turn(self, pace: Pace) -> int:
        """How many steps it took; 0: nothing waits."""
        if self._again.take():
            self._skipped.clear()
        until = time.monotonic() + _SECONDS
        size = max(1, round(settings.FEED_FANOUT_BATCH * pace.share))
        done = 0
        for status in _OPEN:
            rows = EventQueue.objects.filter(topic=self.topic, status=status).order_by("qid")
            if self._skipped:
                rows = rows.exclude(qid__in=self._skipped)
            # All backfills of a reader are one step: the first one does the work of all.
            steps: dict[tuple[object, ...], list[int]] = {}
            for qid, kind, biz, uid in rows.values_list("qid", "kind", "biz_id", "uid")[
                : pace.events
            ]:
                step = (biz, uid) if kind == _KIND.BACKFILL else (qid,)
                steps.setdefault(step, []).append(qid)
            for qids in steps.values():
                work = partial(self._handle_these, status, size)
                done += sum(isolate(qids, work, queue.set_aside))
                if time.monotonic() > until:
                    break
        return done

    def rest(self, pace: Pace, done: int, took: float) -> float:
        """Seconds to rest after a turn that took so long."""
        # Its events differ too much in what they cost for an effort to be learned.
        return Effort().pause(pace.share, 0, took)

    def _handle_these(self, status: int, size: int, qids: Sequence[int]) -> Sequence[int]:
        def handle() -> int:
            try:
                with transactions.without_patience(), transaction.atomic(durable=True):
                    events = queue.lock_these(qids, status)
                    if events:
                        self._handle(events, size)
                        failpoint("feed_upkeep_before_commit")
                    else:
                        # Another dispatcher has them; if it is frozen, those behind must go on.
                        self._skipped.update(qids)
                    return len(events)
            except transactions.Locked:
                self._skipped.update(qids)
                return 0

        return [transactions.retrying(handle)]

    def _handle(self, events: Sequence[Event], size: int) -> None:
        """One step of an event, or of several backfills of one reader."""
        first = events[0]
        written, position = 0, None
        match first.kind:
            case _KIND.BACKFILL:
                done, written = backfill(first)
            case _KIND.UNFOLLOW:
                done = removal.unfollow(first)
            case _KIND.DELETE:
                position = removal.delete(first, size)
                done = position is None
            case _KIND.MERGE:
                position = merge_author(first, size)
                done = position is None
            case _:
                raise ValueError(f"upkeep of the kind {first.kind!r} is not known")
        qids = [event.qid for event in events]
        now = sql.now()
        counts: counters.Counts = Counter()
        counts[counters.key(first.biz, counters.ENTRIES, self.topic)] = written
        if done:
            queue.mark(qids, _STATUS.HANDLED, now)
            counts[counters.key(first.biz, counters.HANDLED, self.topic)] = len(qids)
        else:
            changes = {"status": _STATUS.IN_SLICES, "position": position or first.position}
            EventQueue.objects.filter(qid__in=qids).update(**changes)
        counters.add(counts, now)


def merge_author(event: Event, size: int) -> str | None:
    """Let `size` readers merge the posts of an author who has very many recipients; where to go
    on, None at the end.

    Posts are written for readers until all of them merge. Only this ends the state "becoming": if
    the author has few recipients again by then, they are pushed again.
    """
    author = users.lock(event.biz, [event.uid])[event.uid]
    merging = FeedUser.Merging
    if author.merging != merging.BECOMING:
        return None
    part = next_slice(event, ALL_RELATIONS, size)
    rows = Friend.objects.filter(
        biz_id=event.biz, uid=event.uid, relation=part.relation, fri_uid__gt=part.after,
        delivery=Friend.Delivery.PUSHED,
    )  # fmt: skip
    if part.until is not None:
        rows = rows.filter(fri_uid__lte=part.until)
    rows.update(delivery=Friend.Delivery.BOTH)
    if part.position is None:
        few = author.friends + author.followers < settings.FEED_WRITE_FANOUT_BELOW
        FeedUser.objects.filter(biz_id=event.biz, uid=event.uid).update(
            merging=merging.PUSHED if few else merging.MERGED
        )
    return part.position
