"""The pace of all dispatchers: one of the dispatchers' pacer threads decides, all follow.

The thread that holds the lease is the scheduler. It measures the load and decides once a second, or
every two seconds while no dispatcher has work. When it dies or is frozen the lease ends, and
another dispatcher takes over.
"""

import time
import uuid
from collections.abc import Mapping

from django.conf import settings
from django.db import connection
from django.utils import timezone

from msgplatform.core.daemons.heartbeats import WITHDRAW_SECONDS, Heartbeat
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.daemons.timer import Every
from msgplatform.core.data import engines, sql
from notify.feed import presence
from notify.feed.dispatcher import pace
from notify.feed.dispatcher.pace import Pace, pace_of
from notify.feed.models import EventQueue, FeedPace
from notify.feed.monitor import backlog
from notify.feed.presence import DispatcherReport, PaceDecision

SAMPLE_SECONDS = 0.05
# Idle dispatchers take samples too, so that the first decision after a pause is not a guess.
_IDLE_SAMPLE_SECONDS = 2.0
# The share before the first measurement: half speed neither disturbs much nor is idle.
FIRST_SHARE = 0.5
_RECORD_SECONDS = 10.0
_TURN_SECONDS = 5.0  # for which the same dispatchers work while others rest
_LATE_FACTOR = 2  # multiplies the least share while an event is late
_CONSULT_SECONDS = 1.0
# Seconds for which a dispatcher counts as having work after it handled an event.
_WORK_SECONDS = 3.0
# Seconds for which the last decision counts while Redis is unavailable.
KEEP_SECONDS = 30.0


class Pacer:
    """The dispatcher's own thread calls the public methods; the rest runs in the pacer's thread.
    Before `start` the pace is full speed.

    A dispatcher that does not take turns with others always does its share.
    """

    def __init__(self, heartbeat: Heartbeat, takes_turns: bool = True) -> None:
        self._takes_turns = takes_turns
        self._name = f"{heartbeat.name}:{uuid.uuid4().hex[:8]}"
        self._loop = ThreadLoop("feed-pace", self._turn, last=self._end, longest_pause=2.0)
        self._next_consultation = Every(_CONSULT_SECONDS)
        self._rules = pace.parse_hours(settings.FEED_SHARE_BY_HOUR)
        self._scheduler: Scheduler | None = None
        # Written by the pacer's thread, read by the dispatcher's.
        self._pace, self._decided_at = Pace(), float("inf")
        # Written by the dispatcher's thread, read by the pacer's thread: the dispatcher's
        # connection, and the last time at which it had work.
        self._connection = 0
        self._worked_at = -_WORK_SECONDS

    def start(self) -> None:
        self._pace, self._decided_at = self._unmeasured_pace(), time.monotonic()
        self._loop.start()

    def stop(self) -> None:
        self._loop.stop(wait=WITHDRAW_SECONDS)

    def current(self) -> Pace:
        """The pace of the last decision; half speed after KEEP_SECONDS without a decision."""
        # 0: the connection was closed for its age; this turn opens a new connection.
        number = engines.of().connection_id(connection)
        if number and number != self._connection:
            # Report a new connection at once: the scheduler would take it for another program's.
            self._connection = number
            self._next_consultation.at_once()
            self._loop.wake()
        if time.monotonic() - self._decided_at > KEEP_SECONDS:
            return self._unmeasured_pace()
        return self._pace

    def _unmeasured_pace(self) -> Pace:
        """Half speed, or the largest share at this hour if that is lower."""
        return pace_of(min(FIRST_SHARE, pace.max_share_at(self._rules, timezone.localtime())))

    def note_work(self) -> None:
        """Note that the dispatcher has handled events."""
        now = time.monotonic()
        was_idle = now - self._worked_at >= _WORK_SECONDS
        self._worked_at = now
        if was_idle:  # an idle scheduler looks seldom, so report at once
            self._next_consultation.at_once()
            self._loop.wake()

    def _turn(self) -> float:
        if self._next_consultation.take():
            self._consult()
        return self._scheduler.sample() if self._scheduler else _CONSULT_SECONDS

    def _consult(self) -> None:
        """Report the dispatcher's connection, and make or read the decision."""
        has_work = time.monotonic() - self._worked_at < _WORK_SECONDS
        report = DispatcherReport(self._connection, self._takes_turns, has_work)
        presence.dispatchers.report({self._name: report})
        is_scheduler, decision = presence.lease.hold(self._name), presence.read_decision()
        if not is_scheduler:
            self._scheduler = None
        else:
            # A new scheduler goes on from the last decision of the scheduler before.
            scheduler = self._scheduler = self._scheduler or Scheduler(self._name, decision)
            new_decision = scheduler.decide(presence.dispatchers.read())
            if presence.publish_decision(new_decision):
                scheduler.record(new_decision)
                decision = new_decision
            else:
                self._scheduler = None  # too late: another scheduler decides now
        if decision is None:
            return
        # A decision without names is from another version, or from before any dispatcher reported.
        if not self._takes_turns or not decision.working_names:
            self._pace = pace_of(decision.share)
        else:
            is_at_work = self._name in decision.working_names
            self._pace = Pace(decision.events, decision.share_each if is_at_work else 0.0)
        self._decided_at = time.monotonic()

    def _end(self) -> None:
        connection.close()
        presence.dispatchers.withdraw(self._name)
        presence.lease.release(self._name)


class Scheduler:
    """Measures and decides, in one thread. `last`: the decision that was valid until now."""

    def __init__(self, name: str, last: PaceDecision | None) -> None:
        self._name = name
        self._share = last.share if last else FIRST_SHARE
        self._meter = pace.Meter(last.baseline / 1000 if last else 0.0)
        self._rules = pace.parse_hours(settings.FEED_SHARE_BY_HOUR)
        self._record = Every(_RECORD_SECONDS)
        self._is_idle = self._was_recorded_idle = False
        # Connection of a dispatcher → time until which samples may have it. A connection is closed
        # for its age once a minute, and its statements stay in the samples for some seconds.
        self._connections: dict[int, float] = {}
        self._pause = SAMPLE_SECONDS
        self._targets = pace.Targets(
            settings.FEED_TARGET_STATEMENTS, settings.FEED_TARGET_LATENCY, settings.FEED_TARGET_CPU
        )

    def sample(self) -> float:
        """Measure once; the seconds until the next time."""
        self._meter.sample()
        return self._pause

    def decide(self, dispatchers: Mapping[str, DispatcherReport]) -> PaceDecision:
        """The decision for the next second, for all these dispatchers."""
        oldest = backlog.oldest(sql.now())
        self._is_idle = not oldest and not any(report.has_work for report in dispatchers.values())
        self._pause = _IDLE_SAMPLE_SECONDS if self._is_idle else SAMPLE_SECONDS
        is_late = max(oldest.values(), default=0.0) > settings.FEED_LATE_SECONDS
        max_share = pace.max_share_at(self._rules, timezone.localtime())
        min_share = min(max_share, settings.FEED_MIN_SHARE * (_LATE_FACTOR if is_late else 1))
        now = time.monotonic()
        until = now + pace.STATEMENTS_SECONDS + _CONSULT_SECONDS
        self._connections |= {report.connection: until for report in dispatchers.values()}
        self._connections = {number: end for number, end in self._connections.items() if end > now}
        server_load = self._meter.load(self._connections)
        # Before the first sample the share does not change.
        load, cause = pace.COMFORTABLE_LOAD, ""
        if server_load:
            load, cause = pace.load_of(server_load, self._targets)
        is_alone = server_load is not None and cause == pace.Cause.NONE
        self._share = pace.next_share(self._share, load, min_share, max_share, is_alone)
        turn = int(time.time() / _TURN_SECONDS)
        names = [name for name, dispatcher in dispatchers.items() if dispatcher.takes_turns]
        working_names, share_each = pace.divide(self._share, names, turn)
        figures = server_load or pace.Load(0.0, 0.0, 0.0, 0.0)
        return PaceDecision(
            by=self._name, at=time.time(), share=self._share, working_names=working_names,
            share_each=share_each, events=pace_of(self._share).events, load=round(load, 3),
            cause=cause,
            latency=figures.latency * 1000, baseline=figures.baseline * 1000,
            statements=round(figures.statements, 3), cpu=round(figures.cpu, 3),
            min_share=min_share, max_share=max_share, oldest=oldest,
        )  # fmt: skip

    def record(self, decision: PaceDecision) -> None:
        """Store a row for the console's charts, if it is time. While idle one row is stored."""
        if (self._is_idle and self._was_recorded_idle) or not self._record.take():
            return
        self._was_recorded_idle = self._is_idle
        counts = backlog.counts()
        set_aside = EventQueue.Status.SET_ASIDE
        open_count = sum(n for (_, status), n in counts.items() if status != set_aside)
        FeedPace.objects.create(
            at=sql.now(), share=decision.share, events=decision.events, load=decision.load,
            cause=decision.cause, latency=decision.latency, baseline=decision.baseline,
            statements=decision.statements, cpu=decision.cpu, backlog=open_count,
            oldest=max(decision.oldest.values(), default=0.0),
        )  # fmt: skip
