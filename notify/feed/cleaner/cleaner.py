"""Cleaner: deletes what is no longer needed, one bounded step a turn.

Several may run: one of them works at a time, and when it dies another goes on as soon as its lease
runs out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple

from django.conf import settings

from msgplatform.core.archive import retention
from msgplatform.core.archive.description import Archive
from msgplatform.core.connections import RedisError, work_redis
from msgplatform.core.daemons.daemon import Worker
from msgplatform.core.daemons.lease import Lease
from msgplatform.core.daemons.timer import Every
from msgplatform.core.data import sql
from notify.feed.cleaner import events, inactive
from notify.feed.cleaner.months import Months
from notify.feed.cleaner.timelines import Timelines
from notify.feed.models import FeedPace
from notify.feed.retention import ENTRIES, EVENTS, KEEP_PACE_DAYS, KEYS

# Longer than most steps take. Should two cleaners work at once, no harm is done: every step can be
# repeated.
LEASE_SECONDS = 120.0
_MAX_REST = 1.0
# The walk through all timelines reads every entry: every so many rounds, by default once a day.
_ROUNDS_A_WALK = 24


class Step(NamedTuple):
    """`work` is called until it says that nothing is left; then `archive`, of which it deletes the
    oldest rows, is looked at: an alert says when they stay for too long."""

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
        self._left: list[Step] = []
        self._rounds = 0

    def turn(self) -> bool:
        """A step of a round; true while the round goes on."""
        if not self._left and not self._next.is_due:
            return False
        if not self._lease.hold(self.heartbeat.name):
            return False
        if not self._left:
            self._next.restart()
            now, walk = sql.now(), self._rounds % _ROUNDS_A_WALK == 0
            self._left = [
                Step(lambda: events.clean(now), EVENTS),
                Step(lambda: retention.purge(KEYS, now) > 0, KEYS),
                Step(lambda: delete_decisions(now)),
                Step(lambda: inactive.deactivate(now)),
                *([Step(Timelines(now).clean)] if walk else []),
                Step(Months(now).clean, ENTRIES),
            ]
            self._rounds += 1
        step, begun = self._left[0], time.monotonic()
        try:
            if step.work():
                # As long as the step took, at most a second: others get half of the time.
                self.stopping.wait(min(_MAX_REST, time.monotonic() - begun))
                return True
        except Exception as error:
            del self._left[0]  # a step that fails must not hold up the others
            step.report(retention.reason(error))
            raise
        del self._left[0]
        step.report(retention.NOT_FINAL)
        return bool(self._left)

    def stop(self) -> None:
        with suppress(RedisError):  # then the lease runs out
            self._lease.release(self.heartbeat.name)


def delete_decisions(now: datetime) -> bool:
    """A page of the scheduler's old decisions; whether there may be more."""
    old = FeedPace.objects.filter(at__lt=now - timedelta(days=KEEP_PACE_DAYS))
    page = list(old.order_by("at").values_list("at", flat=True)[:1000])
    FeedPace.objects.filter(at__in=page).delete()
    return len(page) == 1000
