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
from msgplatform.core.data import sql
from msgplatform.core.failpoints import failpoint
from notify.feed.dispatcher import merging, queue, removal
from notify.feed.dispatcher.backfill import backfill
from notify.feed.dispatcher.pace import Effort, Pace
from notify.feed.dispatcher.queue import Event
from notify.feed.dispatcher.receiver import set_aside
from notify.feed.models import EventQueue
from notify.feed.monitor import counters

_KIND, _STATUS = EventQueue.Kind, EventQueue.Status
_SECONDS = 0.1  # of a turn: posts wait meanwhile
_OPEN = (_STATUS.WAITING, _STATUS.IN_SLICES)
# An event that was passed over waits so long: those after it are to be reached meanwhile. Nobody
# sees it: readers do not need what upkeep does.
_PASSED_SECONDS = 30.0


class Upkeep:
    """`turn` takes one step of each of the oldest events, as many as it has time for.

    An event that needs what another transaction has locked is passed over for a while: whoever
    holds the lock may be frozen, and the others go on.
    """

    topic = str(EventQueue.Topic.UPKEEP)

    def __init__(self) -> None:
        self._passed: set[int] = set()
        self._again = Every(_PASSED_SECONDS)

    def turn(self, pace: Pace) -> int:
        """How many steps it took; 0: nothing waits."""
        if self._again.take():
            self._passed.clear()
        until = time.monotonic() + _SECONDS
        size = max(1, round(settings.FEED_SLICE * pace.share))
        steps = 0
        for status in _OPEN:
            for qids in self._oldest(status, pace.events):
                work = partial(self._handle_these, status, size)
                steps += sum(isolate(qids, work, set_aside))
                if time.monotonic() > until:
                    break
        return steps

    def rest(self, pace: Pace, done: int, took: float) -> float:
        """Seconds to rest after a turn that took so long."""
        return Effort().pause(pace.share, 0, took)

    def _oldest(self, status: int, limit: int) -> list[list[int]]:
        """The oldest events; all backfills of a reader are one step."""
        rows = EventQueue.objects.filter(topic=self.topic, status=status).order_by("qid")
        if self._passed:
            rows = rows.exclude(qid__in=self._passed)
        steps: dict[tuple[object, ...], list[int]] = {}
        for qid, kind, biz, uid in rows.values_list("qid", "kind", "biz_id", "uid")[:limit]:
            step = (biz, uid) if kind == _KIND.BACKFILL else (qid,)
            steps.setdefault(step, []).append(qid)
        return list(steps.values())

    def _handle_these(self, status: int, size: int, qids: Sequence[int]) -> Sequence[int]:
        def handle() -> int:
            try:
                with sql.without_patience(), transaction.atomic(durable=True):
                    # Another dispatcher may have them; it may be frozen, and those behind go on.
                    events = queue.lock_these(qids, status)
                    if events:
                        self._handle(events, size)
                        failpoint("feed_upkeep_before_commit")
                    else:
                        self._passed.update(qids)
                    return len(events)
            except sql.Locked:
                self._passed.update(qids)
                return 0

        return [sql.retrying(handle)]

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
                position = merging.merge(first, size)
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
