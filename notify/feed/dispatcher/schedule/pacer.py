"""The pace of one dispatcher, kept up to date by a thread that may also be the scheduler."""

from __future__ import annotations

import time
import uuid

from django.db import connection

from msgplatform.core.daemons.heartbeats import WITHDRAW_SECONDS, Heartbeat
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.daemons.timer import Every
from msgplatform.core.data.load import connection_id
from notify.feed import presence
from notify.feed.dispatcher.pace import Pace, pace_of
from notify.feed.dispatcher.schedule.scheduler import FIRST_SHARE, Scheduler
from notify.feed.presence import Working

_CONSULT_SECONDS = 1.0
# How long a dispatcher counts as one that has work after it handled something.
_WORK_SECONDS = 3.0
# How long the last decision counts while Redis is unavailable.
KEEP_SECONDS = 30.0


class Pacer:
    """The dispatcher's own thread calls the public methods; the rest runs in the pacer's thread.
    Until it is started the pace is full speed.

    A dispatcher that does not take turns with others always does its share.
    """

    def __init__(self, heartbeat: Heartbeat, takes_turns: bool = True) -> None:
        self._takes_turns = takes_turns
        self._me = f"{heartbeat.name}:{uuid.uuid4().hex[:8]}"
        self._loop = ThreadLoop("feed-pace", self._turn, last=self._end, longest_pause=2.0)
        self._next = Every(_CONSULT_SECONDS)
        self._scheduler: Scheduler | None = None
        # Written by the pacer's thread, read by the dispatcher's.
        self._pace, self._heard = Pace(), float("inf")
        # Written by the dispatcher's thread, read by the pacer's: its connection, and when it last
        # had work.
        self._working = 0
        self._worked_at = -_WORK_SECONDS

    def start(self) -> None:
        self._pace, self._heard = pace_of(FIRST_SHARE), time.monotonic()
        self._loop.start()

    def stop(self) -> None:
        self._loop.stop(wait=WITHDRAW_SECONDS)

    def current(self) -> Pace:
        """The last decision; half speed when none was heard for long."""
        if (working := connection_id()) != self._working:
            # A new connection, which the scheduler would take for somebody else's: report it now.
            self._working = working
            self._next.at_once()
            self._loop.wake()
        if time.monotonic() - self._heard > KEEP_SECONDS:
            return pace_of(FIRST_SHARE)
        return self._pace

    def worked(self) -> None:
        """The dispatcher handled events."""
        now = time.monotonic()
        was_idle = now - self._worked_at >= _WORK_SECONDS
        self._worked_at = now
        if was_idle:  # the scheduler looks seldom then: let it know at once
            self._next.at_once()
            self._loop.wake()

    def _turn(self) -> float:
        if self._next.take():
            self._consult()
        return self._scheduler.sample() if self._scheduler else _CONSULT_SECONDS

    def _consult(self) -> None:
        """Report which connection is its own, and decide or read what was decided."""
        has_work = time.monotonic() - self._worked_at < _WORK_SECONDS
        working = Working(self._working, self._takes_turns, has_work)
        presence.dispatchers.report({self._me: working})
        mine, decision = presence.lease.hold(self._me), presence.read()
        if not mine:
            self._scheduler = None
        else:
            # Who takes over goes on from the last decision, whoever made it.
            scheduler = self._scheduler = self._scheduler or Scheduler(self._me, decision)
            made = scheduler.decide(presence.dispatchers.read())
            if presence.publish(made):
                scheduler.record(made)
                decision = made
            else:
                self._scheduler = None  # it took so long that another one decides now
        if decision is None:
            return
        # Without names it is of an older version, or no dispatcher was known.
        if not self._takes_turns or not decision.at_work:
            self._pace = pace_of(decision.share)
        else:
            at_work = self._me in decision.at_work
            self._pace = Pace(decision.events, decision.each if at_work else 0.0)
        self._heard = time.monotonic()

    def _end(self) -> None:
        connection.close()
        presence.dispatchers.withdraw(self._me)
        presence.lease.release(self._me)
