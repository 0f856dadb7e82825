"""A receiver: takes the oldest events of its topic and writes an entry for every recipient.

Entries and the events' status are one transaction, so each event has its effect once. The oldest
events come first: otherwise the oldest events of a backlog would wait for ever.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from django.conf import settings
from django.db import transaction

from msgplatform.core import alerts
from msgplatform.core.daemons.bisect import is_unavailable, isolate
from msgplatform.core.daemons.timer import Every
from msgplatform.core.data import sql, transactions
from msgplatform.core.failpoints import failpoint
from notify.feed.dispatcher import fanout, queue
from notify.feed.dispatcher.pace import FULL_SPEED, MAX_EVENTS, MIN_EVENTS, Effort, Pace
from notify.feed.dispatcher.queue import Event, Front
from notify.feed.models import EventQueue, FeedUser
from notify.feed.models.users import RELATIONS_OF_TOPIC
from notify.feed.monitor import counters

_STATUS = EventQueue.Status
_MERGED = FeedUser.Merging.MERGED
_EVENT_WORK = 20  # the number of entries that take as long as an event
MAX_ENTRIES = 20_000  # recipients in one transaction; a slice of 5,000 takes about 25 ms
# Seconds for which an event is skipped whose rows another transaction has locked.
SKIPPED_SECONDS = 30.0


class Receiver:
    """`turn` handles one batch of small events, and one slice of the oldest large event."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self._front = Front(topic)
        self._effort, self._work = Effort(), 0  # the work of this turn, counted in entries
        self._skipped_ids: set[int] = set()
        self._next_forget = Every(SKIPPED_SECONDS)

    def turn(self, pace: Pace) -> int:
        """Return the number of handled events; a slice counts as one; 0: no event waits."""
        self._work = 0
        if self._next_forget.take():
            self._skipped_ids.clear()
        size = max(1, round(settings.FEED_FANOUT_BATCH * pace.share))
        return self._handle_batch(self._effort.events(pace)) + self._handle_slice(size)

    def pause_after(self, pace: Pace, count: int, seconds: float) -> float:
        """Seconds to rest after a turn that handled `count` events in `seconds`."""
        if count >= MIN_EVENTS * FULL_SPEED:
            # Only full batches at full speed show the cost of work that nothing slows down.
            is_undisturbed = pace.share >= FULL_SPEED and count >= MAX_EVENTS * FULL_SPEED
            self._effort.learn(self._work, seconds, is_undisturbed)
        return self._effort.pause(pace.share, self._work, seconds)

    # -- a batch ---------------------------------------------------------------------------------
    def _handle_batch(self, limit: int) -> int:
        """Handle the oldest events in one transaction; if that fails, find the event to blame."""
        if not self._front.has_events():
            return 0
        locked_ids: list[int] = []

        def handle_oldest() -> int:
            with transaction.atomic(durable=True):
                events = self._front.lock(limit, self._skipped_ids)
                locked_ids[:] = [event.qid for event in events]
                count = self._handle(events)
                failpoint("feed_before_commit")
            # The front moves after the commit, because it must not pass an event that still waits.
            self._front.move(events[:count], is_full=len(events) == limit)
            failpoint("feed_after_commit")
            return count

        def handle_by_id(qids: Sequence[int]) -> int:
            with transaction.atomic(durable=True):
                return self._handle(queue.lock_by_id(qids, _STATUS.WAITING))

        return self._isolate_failures(handle_oldest, handle_by_id, locked_ids)

    def _handle(self, events: Sequence[Event]) -> int:
        """Write the entries of these locked events, up to the size of one transaction; returns the
        number of events that no longer wait."""
        authors: dict[tuple[int, str], FeedUser] = {}
        for biz in {event.biz for event in events}:
            uids = {event.uid for event in events if event.biz == biz}
            rows = FeedUser.objects.filter(biz_id=biz, uid__in=uids)
            authors.update(((biz, row.uid), row) for row in rows)
        total = 0  # recipients of all events whose entries are written
        recipient_counts: dict[Event, int] = {}
        merge_events: list[Event] = []
        large_events: list[Event] = []
        for event in events:
            author = authors.get((event.biz, event.uid))
            recipient_count = author.recipient_count(self.topic) if author else 0
            if author is not None and author.merging == _MERGED:
                merge_events.append(event)  # readers find the post themselves: nothing is written
            elif recipient_count > settings.FEED_FANOUT_BATCH:
                large_events.append(event)
            elif recipient_counts and total + recipient_count > MAX_ENTRIES:
                break  # the other events are the next batch's
            else:
                recipient_counts[event] = recipient_count
                total += recipient_count
        entries = 0
        if total:
            with transactions.without_patience():
                entries = fanout.push(self.topic, [event.qid for event in recipient_counts])
        self._work += _EVENT_WORK * len(events) + total
        now = sql.now()
        handled_events = [*recipient_counts, *merge_events]
        queue.mark([event.qid for event in handled_events], _STATUS.HANDLED, now)
        queue.mark([event.qid for event in large_events], _STATUS.IN_SLICES)
        counts: counters.Counts = Counter()
        for event in handled_events:
            counts[counters.key(event.biz, counters.HANDLED, self.topic)] += 1
        for event in merge_events:
            counts[counters.key(event.biz, counters.MERGED, self.topic)] += 1
        by_system: Counter[int] = Counter()
        for event, recipient_count in recipient_counts.items():
            by_system[event.biz] += recipient_count
        for biz, recipient_count in by_system.items():
            # Only the number of entries of the whole batch is known (inactive readers get none), so
            # each system counts its share.
            share = round(entries * recipient_count / max(1, total))
            counts[counters.key(biz, counters.ENTRIES, self.topic)] += share
        # Counters come last, because other dispatchers wait for these rows until the commit.
        counters.add(counts, now)
        return len(handled_events) + len(large_events)

    # -- slices ----------------------------------------------------------------------------------
    def _handle_slice(self, size: int) -> int:
        """Take the oldest event in slices that nobody else has locked, and write its entries for
        the next `size` recipients."""
        rows = EventQueue.objects.filter(topic=self.topic, status=_STATUS.IN_SLICES)
        # The first look is without a lock, because there is mostly no event in slices.
        if not list(rows.order_by("qid").values_list("qid", flat=True)[:1]):
            return 0
        locked_ids: list[int] = []

        def write_oldest() -> int:
            with transaction.atomic(durable=True):
                events = queue.lock(self.topic, _STATUS.IN_SLICES, 1, skipped_ids=self._skipped_ids)
                locked_ids[:] = [event.qid for event in events]
                for event in events:
                    self._write_slice(event, size)
                    failpoint("feed_slice_before_commit")
            return len(events)

        def write_by_id(qids: Sequence[int]) -> int:
            with transaction.atomic(durable=True):
                events = queue.lock_by_id(qids, _STATUS.IN_SLICES)
                for event in events:
                    self._write_slice(event, size)
            return len(events)

        return self._isolate_failures(write_oldest, write_by_id, locked_ids)

    def _write_slice(self, event: Event, size: int) -> None:
        part = fanout.next_slice(event, RELATIONS_OF_TOPIC[self.topic], size)
        self._work += size
        with transactions.without_patience():
            entries = fanout.push_slice(event.qid, part)
        now = sql.now()
        counts: counters.Counts = Counter()
        counts[counters.key(event.biz, counters.ENTRIES, self.topic)] = entries
        row = EventQueue.objects.filter(qid=event.qid)
        if part.position is not None:
            row.update(position=part.position)
        else:
            row.update(status=_STATUS.HANDLED, handle_date=now)
            counts[counters.key(event.biz, counters.HANDLED, self.topic)] = 1
        counters.add(counts, now)

    def _isolate_failures(
        self,
        handle: Callable[[], int],
        handle_by_id: Callable[[Sequence[int]], int],
        locked_ids: Sequence[int],
    ) -> int:
        """Call `handle`, which writes the ids of its events into `locked_ids`. If it fails, handle
        these events in halves, until each failing event is alone. A failing event is set aside; an
        event that needs locked rows is only skipped."""

        def skip_or_set_aside(qid: int, error: Exception) -> alerts.AlertEvent | None:
            if isinstance(error, transactions.Locked):
                self._skipped_ids.add(qid)
                return None
            return queue.set_aside(qid, error)

        try:
            return transactions.retrying(handle)
        except Exception as error:
            if is_unavailable(error) or not locked_ids:
                raise
        # Events are named by id, because the oldest may now be other events.
        counts = isolate(
            locked_ids,
            lambda half: [transactions.retrying(partial(handle_by_id, half))],
            skip_or_set_aside,
        )
        return sum(counts)
