"""A receiver: takes the oldest events of its topic and writes an entry for every recipient.

Entries and the events' status are one transaction, so each event has its effect once. Oldest
first: newest first would leave the oldest ones waiting for ever behind a backlog.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from django.conf import settings
from django.db import transaction

from msgplatform.core import alerts
from msgplatform.core.daemons.bisect import is_unavailable, isolate
from msgplatform.core.daemons.timer import Every
from msgplatform.core.data import sql, transactions
from msgplatform.core.failpoints import failpoint
from notify.feed.dispatcher import fanout, queue
from notify.feed.dispatcher.pace import FULL_SPEED, MAX_EVENTS, Effort, Pace
from notify.feed.dispatcher.queue import Event, Front
from notify.feed.models import EventQueue, FeedUser
from notify.feed.models.posts import Topic
from notify.feed.monitor import counters

_STATUS = EventQueue.Status
_MERGED = FeedUser.Merging.MERGED
_EVENT_WORK = 20  # an event takes as long as so many entries
MAX_ENTRIES = 20_000  # recipients in one transaction; a slice of 5,000 takes about 25 ms
# How long an event is skipped that needs what another transaction has locked; those after it go on.
SKIPPED_SECONDS = 30.0


class Receiver:
    """`turn` is one batch of small events, and one slice of the oldest large one."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self._front = Front(topic)
        self._effort, self._work = Effort(), 0  # the work of this turn, counted in entries
        self._skipped: set[int] = set()
        self._again = Every(SKIPPED_SECONDS)

    def turn(self, pace: Pace) -> int:
        """How many events it handled, a slice counting as one; 0: nothing waits."""
        self._work = 0
        if self._again.take():
            self._skipped.clear()
        return self._batch(self._effort.events(pace)) + self._slice(
            max(1, round(settings.FEED_FANOUT_BATCH * pace.share))
        )

    def rest(self, pace: Pace, done: int, took: float) -> float:
        """Seconds to rest after a turn that did so much and took so long."""
        # Only full batches at full speed show what work takes when nothing slows it down.
        if pace.share >= FULL_SPEED and done >= MAX_EVENTS * FULL_SPEED:
            self._effort.learn(self._work, took)
        return self._effort.pause(pace.share, self._work, took)

    # -- a batch ---------------------------------------------------------------------------------
    def _batch(self, limit: int) -> int:
        """Handle the oldest events in one transaction; if that fails, find the event to blame."""
        if not self._front.anything():
            return 0
        taken: list[int] = []

        def handle_oldest() -> int:
            with transaction.atomic(durable=True):
                events = self._front.lock(limit, self._skipped)
                taken[:] = [event.qid for event in events]
                handled = self._handle(events)
                failpoint("feed_before_commit")
            # After the commit, because the front must not pass an event that still waits.
            self._front.move(events[:handled], is_full=len(events) == limit)
            failpoint("feed_after_commit")
            return handled

        def handle_these(qids: Sequence[int]) -> int:
            with transaction.atomic(durable=True):
                return self._handle(queue.lock_these(qids, _STATUS.WAITING))

        try:
            return transactions.retrying(handle_oldest)
        except Exception as error:
            if is_unavailable(error):
                raise
            return self._isolate(taken, handle_these)

    def _handle(self, events: Sequence[Event]) -> int:
        """Write the entries of these locked events, as many as are good for one transaction; how
        many events were dealt with."""
        authors = _authors({(event.biz, event.uid) for event in events})
        pushed: dict[Event, int] = {}
        merged: list[Event] = []
        large: list[Event] = []
        for event in events:
            author = authors.get((event.biz, event.uid))
            recipients = author.recipients(self.topic) if author else 0
            if author is not None and author.merging == _MERGED:
                merged.append(event)  # readers find the post themselves: nothing is written
            elif recipients > settings.FEED_FANOUT_BATCH:
                large.append(event)
            elif pushed and sum(pushed.values()) + recipients > MAX_ENTRIES:
                break  # what is left is the next batch's
            else:
                pushed[event] = recipients
        written = 0
        if any(pushed.values()):
            with transactions.without_patience():
                written = fanout.push(self.topic, [event.qid for event in pushed])
        self._work += _EVENT_WORK * len(events) + sum(pushed.values())
        now = sql.now()
        queue.mark([event.qid for event in (*pushed, *merged)], _STATUS.HANDLED, now)
        queue.mark([event.qid for event in large], _STATUS.IN_SLICES)
        # Last, because other dispatchers wait for these rows until the commit.
        counters.add(self._counts(pushed, written, merged), now)
        return len(pushed) + len(merged) + len(large)

    def _counts(
        self, pushed: Mapping[Event, int], written: int, merged: Sequence[Event]
    ) -> counters.Counts:
        counts: counters.Counts = Counter()
        recipients = sum(pushed.values()) or 1
        for event in (*pushed, *merged):
            counts[counters.key(event.biz, counters.HANDLED, self.topic)] += 1
        for event in merged:
            counts[counters.key(event.biz, counters.MERGED, self.topic)] += 1
        shares: Counter[int] = Counter()
        for event, share in pushed.items():
            shares[event.biz] += share
        for biz, share in shares.items():
            # The database says only how many entries the whole batch wrote (inactive readers get
            # none), so each system is counted its share of them.
            entries = round(written * share / recipients)
            counts[counters.key(biz, counters.ENTRIES, self.topic)] += entries
        return counts

    # -- slices ----------------------------------------------------------------------------------
    def _slice(self, size: int) -> int:
        """Write the oldest event in slices that nobody else works on for its next `size`
        recipients."""
        rows = EventQueue.objects.filter(topic=self.topic, status=_STATUS.IN_SLICES)
        # Without a lock first: mostly there is none.
        if not list(rows.order_by("qid").values_list("qid", flat=True)[:1]):
            return 0
        taken: list[int] = []

        def write_oldest() -> int:
            with transaction.atomic(durable=True):
                events = queue.lock(self.topic, _STATUS.IN_SLICES, 1, without=self._skipped)
                taken[:] = [event.qid for event in events]
                for event in events:
                    self._write_slice(event, size)
                    failpoint("feed_slice_before_commit")
            return len(events)

        def write_these(qids: Sequence[int]) -> int:
            with transaction.atomic(durable=True):
                events = queue.lock_these(qids, _STATUS.IN_SLICES)
                for event in events:
                    self._write_slice(event, size)
            return len(events)

        try:
            return transactions.retrying(write_oldest)
        except Exception as error:
            if is_unavailable(error) or not taken:
                raise
            # By its id: by now the oldest may be another one, which has not failed.
            return self._isolate(taken, write_these)

    def _write_slice(self, event: Event, size: int) -> None:
        part = fanout.next_slice(event, fanout.RELATIONS[Topic(self.topic)], size)
        self._work += size
        with transactions.without_patience():
            written = fanout.push_slice(event.qid, part.relation, part.after, part.until)
        now = sql.now()
        counts: counters.Counts = Counter()
        counts[counters.key(event.biz, counters.ENTRIES, self.topic)] = written
        row = EventQueue.objects.filter(qid=event.qid)
        if part.position is not None:
            row.update(position=part.position)
        else:
            row.update(status=_STATUS.HANDLED, handle_date=now)
            counts[counters.key(event.biz, counters.HANDLED, self.topic)] = 1
        counters.add(counts, now)

    def _isolate(self, taken: Sequence[int], handle: Callable[[Sequence[int]], int]) -> int:
        """Handle what was taken in halves, until each event that fails is alone. Such an event is
        set aside; one that needs what is locked is only skipped."""

        def skip_or_set_aside(qid: int, error: Exception) -> alerts.AlertEvent | None:
            if isinstance(error, transactions.Locked):
                self._skipped.add(qid)
                self._again.restart()
                return None
            return queue.set_aside(qid, error)

        return sum(
            isolate(
                taken,
                lambda qids: [transactions.retrying(partial(handle, qids))],
                skip_or_set_aside,
            )
        )


def _authors(users: set[tuple[int, str]]) -> dict[tuple[int, str], FeedUser]:
    found: dict[tuple[int, str], FeedUser] = {}
    for biz in {biz for biz, _ in users}:
        uids = [uid for of, uid in users if of == biz]
        rows = FeedUser.objects.filter(biz_id=biz, uid__in=uids)
        found.update(((biz, row.uid), row) for row in rows)
    return found
