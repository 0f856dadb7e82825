"""Cleaner: deletes rows that are no longer needed, one bounded step a turn.

Several cleaners may run. The one with the lease works; when it dies another cleaner goes on after
the lease is over. Every step can be repeated.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from msgplatform.core.archive import partitions, retention
from msgplatform.core.archive.description import Archive, horizon
from msgplatform.core.archive.partitions import Partition, partitions_of
from msgplatform.core.connections import RedisError, work_redis
from msgplatform.core.daemons import bisect
from msgplatform.core.daemons.daemon import Worker
from msgplatform.core.daemons.lease import Lease
from msgplatform.core.daemons.timer import Every
from msgplatform.core.data import sql, transactions
from msgplatform.core.failpoints import failpoint
from notify.feed.cleaner.timelines import Timelines, UserPages, skip_refused
from notify.feed.models import EventQueue, FeedPace, FeedUser, Friend
from notify.feed.models.users import NOTHING_WRITTEN, POST_RELATIONS
from notify.feed.retention import ENTRIES, EVENTS, KEEP_PACE_DAYS, KEYS, keep_entries, keep_events
from notify.feed.users import lock

# The lease is longer than most steps. Two cleaners that work at once do no harm.
LEASE_SECONDS = 120.0
CHUNK = 1000  # events deleted by one statement
USERS = 100  # inactive readers of one step
FLOORS = 1000  # users whose floors one statement raises
_MAX_REST_SECONDS = 1.0
# Rounds between two walks through all timelines, which read every entry; at least one walk a day.
_MAX_ROUNDS_A_WALK = 24
_STATUS, _DELIVERY = EventQueue.Status, Friend.Delivery
# The condition names every topic, so that the database can use the index (topic, status, qid).
_NOT_HANDLED = Q(topic__in=EventQueue.Topic.values) & Q(
    status__in=[status for status in _STATUS.values if status != _STATUS.HANDLED]
)


class Step(NamedTuple):
    """`work` is called until it returns False, when nothing is left. Then an alert reports rows
    that stay in `archive` for too long."""

    work: Callable[[], bool]
    archive: Archive | None = None

    def report(self, why: str) -> None:
        if self.archive:
            retention.report(self.archive, sql.now(), why)


class Cleaner(Worker):
    role = "feed_cleaner"

    def __init__(self) -> None:
        super().__init__()
        self._next = Every(settings.FEED_CLEAN_SECONDS)
        self._lease = Lease(work_redis, "feed:cleaner", LEASE_SECONDS)
        self._steps: list[Step] = []  # the remaining steps of this round
        self._rounds = 0
        rounds_a_day = max(1, int(86_400 / settings.FEED_CLEAN_SECONDS))
        self._rounds_a_walk = min(_MAX_ROUNDS_A_WALK, rounds_a_day)

    def turn(self) -> bool:
        """Take a step of a round; True while the round goes on."""
        if not self._steps and not self._next.is_due:
            return False
        if not self._lease.hold(self.heartbeat.name):
            return False
        if not self._steps:
            self._next.restart()
            now, is_walk_due = sql.now(), self._rounds % self._rounds_a_walk == 0
            self._steps = [
                Step(lambda: delete_events(now), EVENTS),
                Step(lambda: retention.purge(KEYS, now) > 0, KEYS),
                Step(lambda: delete_decisions(now)),
                Step(lambda: deactivate_readers(now)),
                *([Step(Timelines(now).clean)] if is_walk_due else []),
                Step(Months(now).clean, ENTRIES),
            ]
            self._rounds += 1
        step, start = self._steps[0], time.monotonic()
        try:
            if step.work():
                # The pause is as long as the step, at most a second: others get half of the time.
                self.stopping.wait(min(_MAX_REST_SECONDS, time.monotonic() - start))
                return True
        except Exception as error:
            del self._steps[0]  # a step that fails must not hold up the others
            step.report(retention.reason(error))
            raise
        del self._steps[0]
        step.report(retention.NOT_FINAL)
        return bool(self._steps)

    def stop(self) -> None:
        with suppress(RedisError):  # then the lease runs out
            self._lease.release(self.heartbeat.name)


# -- events ----------------------------------------------------------------------------------------
def delete_events(now: datetime) -> bool:
    """Delete handled events: a whole day where the table has partitions, else a chunk of rows.
    Returns True if there may be more.

    In a day with an open event only the handled events are deleted.
    """
    partitions.prepare(EVENTS, now)
    before, table = horizon(now, keep_events()), EVENTS.tables[0]
    with partitions.alone(EVENTS) as is_alone:
        if not is_alone:
            return False
        parts = partitions_of(table)
        if not parts:
            return _delete_chunk(Q(qid__lt=before))
        # The first partition also has older events.
        first_ids = [0, *(part.first for part in parts[1:])]
        for first_id, part in zip(first_ids, parts, strict=True):
            if not part.is_below(before):
                continue
            of_day = Q(qid__gte=first_id, qid__lt=part.bound)
            not_handled = EventQueue.objects.filter(_NOT_HANDLED & of_day)
            # The first look is without a lock, because finding nothing may take a while. `drop`
            # looks again under its lock.
            if not_handled.exists():
                is_changed = _delete_chunk(of_day)
            else:
                is_changed = partitions.drop(table, part, not_handled)
            if is_changed:
                return True
        return False


def _delete_chunk(condition: Q) -> bool:
    """Delete a chunk of the handled events; True if there were handled events."""
    count = 0
    for topic in EventQueue.Topic.values:
        handled_events = EventQueue.objects.filter(condition, topic=topic, status=_STATUS.HANDLED)
        qids = list(handled_events.order_by("qid").values_list("qid", flat=True)[:CHUNK])
        count += len(bisect.leave_refused(qids, _delete_events, what="event"))
    return count > 0


def _delete_events(qids: Sequence[int]) -> Sequence[int]:
    # The status is checked again, because an event may have changed since it was read.
    rows = EventQueue.objects.filter(qid__in=qids, status=_STATUS.HANDLED)
    transactions.retrying(rows.delete)
    return qids


def delete_decisions(now: datetime) -> bool:
    """Delete a page of the scheduler's old decisions; True if there may be more."""
    old_rows = FeedPace.objects.filter(at__lt=now - timedelta(days=KEEP_PACE_DAYS))
    page = list(old_rows.order_by("at").values_list("at", flat=True)[:CHUNK])
    FeedPace.objects.filter(at__in=page).delete()
    return len(page) == CHUNK


# -- readers who stay away -------------------------------------------------------------------------
def deactivate_readers(now: datetime) -> bool:
    """Write no more posts for a page of readers who have stayed away for FEED_ACTIVE_DAYS; True if
    there may be more. The walk through all timelines deletes their entries."""
    before = now - timedelta(days=settings.FEED_ACTIVE_DAYS)
    rows = FeedUser.objects.filter(active=True, visit_date__lt=before).order_by("visit_date")
    page = list(rows.values_list("biz_id", "uid")[:USERS])

    def deactivate(reader: tuple[int, str]) -> None:
        transactions.retrying(partial(_deactivate, *reader, before))

    inactive_readers = skip_refused(page, deactivate, "reader")
    return len(page) == USERS and len(inactive_readers) > 0


@transaction.atomic(durable=True)
def _deactivate(biz: int, uid: str, before: datetime) -> None:
    user = lock(biz, [uid])[uid]
    if not user.active or user.visit_date is None or user.visit_date >= before:
        return  # the reader came back at this moment
    rows = FeedUser.objects.filter(biz_id=biz, uid=uid)
    # From this commit on every page is merged at read, so entries may be deleted at any time.
    rows.update(active=False, floor=NOTHING_WRITTEN)
    Friend.objects.filter(
        biz_id=biz,
        fri_uid=uid,
        delivery__in=(_DELIVERY.BOTH, _DELIVERY.PUSHED),
        relation__in=POST_RELATIONS,
    ).update(delivery=_DELIVERY.MERGED)


# -- old entries -----------------------------------------------------------------------------------
class Months:
    """Drops entries older than FEED_KEEP_ENTRY_DAYS by the month, where the table has partitions.

    Before a month is dropped, all floors are raised to the month's end, so that nobody reads
    deleted entries. No backfill sets a floor that low again: see `retention.keep_entries`.
    """

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._month: Partition | None = None  # the month to drop
        self._users = UserPages(FLOORS)

    def clean(self) -> bool:
        """Raise a page of floors, or drop a month; True if there is more to do."""
        table = ENTRIES.tables[0]
        if self._month is None:
            partitions.prepare(ENTRIES, self._now)
            self._users, age = UserPages(FLOORS), keep_entries()
            oldest = partitions_of(table)[:1]
            if age is not None and oldest and oldest[0].is_below(horizon(self._now, age)):
                self._month = oldest[0]
            return self._month is not None
        if self._month.bound and (page := self._users.page()):
            floor = self._month.bound - 1
            FeedUser.objects.filter(
                biz_id=page[0].biz_id,
                uid__gte=page[0].uid,
                uid__lte=page[-1].uid,
                floor__lt=floor,
            ).update(floor=floor)
            return True
        # Every floor is committed. After a cleaner dies here the next round begins with this month.
        failpoint("feed_before_drop")
        with partitions.alone(ENTRIES) as is_alone:
            is_dropped = is_alone and partitions.drop(table, self._month, table.rows().none())
        self._month = None
        return is_dropped
