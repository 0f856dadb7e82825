"""The scheduler: one dispatcher at a time measures the load and decides how fast all of them work.

It decides once a second, or every two seconds while nobody has work, as long as it holds the lease.
When it dies or is frozen the lease runs out, and another dispatcher takes over.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from django.conf import settings
from django.utils import timezone

from msgplatform.core.daemons.timer import Every
from msgplatform.core.data import sql
from notify.feed.dispatcher import pace
from notify.feed.dispatcher.schedule import hours
from notify.feed.dispatcher.schedule.load import Cause, Measured, Meter, Targets, load_of
from notify.feed.models import EventQueue, FeedPace
from notify.feed.monitor import backlog
from notify.feed.presence import Decision, Working

SAMPLE_SECONDS = 0.05
# While nobody has work, only so that the first decision afterwards is not a guess.
_IDLE_SAMPLE_SECONDS = 2.0
# Before anything was measured: half speed is neither much in the way nor idle.
FIRST_SHARE = 0.5
_RECORD_SECONDS = 10.0
_TURN_SECONDS = 5.0  # how long the same dispatchers are at work while others rest
_LATE_FACTOR = 2  # the least share is so many times as large while an event is late


class Scheduler:
    """`last` is the decision that was valid until now, whoever made it. For one thread."""

    def __init__(self, me: str, last: Decision | None) -> None:
        self._me = me
        self._share = last.share if last else FIRST_SHARE
        self._meter = Meter(last.baseline / 1000 if last else 0.0)
        self._rules = hours.parse(settings.FEED_SHARE_BY_HOUR)
        self._record = Every(_RECORD_SECONDS)
        self._is_idle = self._was_recorded_idle = False
        self._pause = SAMPLE_SECONDS
        self._targets = Targets(
            settings.FEED_TARGET_STATEMENTS,
            settings.FEED_TARGET_LATENCY,
            settings.FEED_TARGET_CPU,
        )

    def sample(self) -> float:
        """Measure once; the seconds until the next time."""
        self._meter.sample()
        return self._pause

    def decide(self, dispatchers: Mapping[str, Working]) -> Decision:
        """The decision for the next second, for all of these."""
        own = {dispatcher.connection for dispatcher in dispatchers.values()}
        oldest = backlog.oldest(sql.now())
        self._is_idle = not oldest and not any(one.has_work for one in dispatchers.values())
        self._pause = _IDLE_SAMPLE_SECONDS if self._is_idle else SAMPLE_SECONDS
        is_late = max(oldest.values(), default=0.0) > settings.FEED_LATE_SECONDS
        most = hours.most_at(self._rules, timezone.localtime())
        least = min(most, settings.FEED_MIN_SHARE * (_LATE_FACTOR if is_late else 1))
        measured = self._meter.measured(own)
        # Without a sample yet, the share stays as it is.
        load, cause = load_of(measured, self._targets) if measured else (pace.COMFORTABLE, "")
        is_alone = measured is not None and cause == Cause.NONE
        self._share = pace.next_share(self._share, load, least, most, is_alone)
        turn = int(time.time() / _TURN_SECONDS)
        names = [name for name, dispatcher in dispatchers.items() if dispatcher.takes_turns]
        at_work, each = pace.divided(self._share, names, turn)
        shown = measured or Measured(0.0, 0.0, 0.0, 0.0)
        return Decision(
            by=self._me, at=time.time(), share=self._share, at_work=at_work, each=each,
            events=pace.pace_of(self._share).events, load=round(load, 3), cause=cause,
            latency=shown.latency * 1000, baseline=shown.baseline * 1000,
            statements=round(shown.statements, 3), cpu=round(shown.cpu, 3),
            least=least, most=most, oldest=oldest,
        )  # fmt: skip

    def record(self, decision: Decision) -> None:
        """Keep it for the console's charts, if it is time; while nobody has work only once."""
        if (self._is_idle and self._was_recorded_idle) or not self._record.take():
            return
        self._was_recorded_idle = self._is_idle
        counts = backlog.waiting()
        set_aside = EventQueue.Status.SET_ASIDE
        open_ones = sum(n for (_, status), n in counts.items() if status != set_aside)
        FeedPace.objects.create(
            at=sql.now(), share=decision.share, events=decision.events, load=decision.load,
            cause=decision.cause, latency=decision.latency, baseline=decision.baseline,
            statements=decision.statements, cpu=decision.cpu, backlog=open_ones,
            oldest=max(decision.oldest.values(), default=0.0),
        )  # fmt: skip
