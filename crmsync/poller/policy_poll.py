"""One policy in the poller, round by round.

    each turn                     queue records that are due, in turns with rows that are read;
                                  removals are held for the guard first
    at its interval, on request   read changed rows (a run of changes, or of everything)
    on schedule, on request       compare versions (a sweep), page by page

A round reads one page and stores it. The policy is read again between two rounds, so that a long
run notices changes in the console.
"""

import os
import time
from collections.abc import Callable
from datetime import datetime

from django.db import connection

from crmsync import presence
from crmsync.directory import Crm, Crms, Policies
from crmsync.models import ExceptionEntry, Policy
from crmsync.models.operations import MAX_MESSAGE
from crmsync.policies import schedule
from crmsync.poller import due, removal_guard
from crmsync.poller.changes import Changes, Comparison
from crmsync.poller.distribution import DistributionCenter
from crmsync.poller.reading.increment import Increment
from crmsync.poller.reading.source import (
    Source,
    SourceMismatch,
    SourceRefused,
    SourceUnavailable,
    source_from_row,
)
from crmsync.presence import PolicyFacts
from msgplatform.core import logging
from msgplatform.core.daemons.thread_loop import MAX_AWAY_PAUSE
from msgplatform.core.daemons.timer import Every
from msgplatform.core.data import engines, ids, sql
from msgplatform.core.errors import UNAVAILABLE, InvalidInput, LeaseLost
from msgplatform.core.rates.backoff import Backoff

log = logging.get(__name__)

# An interval is at most so many times as long while the CRM or the database has much to do.
_MAX_FACTOR = 8.0
# Seconds. A CRM with slower calls is busy.
_SLOW_ANSWER = 2.0
# Maximum of concurrent statements for each core of this machine: more would wait for each other.
_THREADS_A_CORE = 4
_LOOK_SECONDS = 5.0

# The pause without work, and so the maximum wait of due records and of changes in the console.
_IDLE_SECONDS = 1.0
_DUE_SECONDS = 0.2
# The guard counts the held records of a policy, which may be hundreds of thousands.
_GUARD_SECONDS = 10.0
# The first pause while the CRM's queues are full: handlers empty queues within milliseconds.
_FULL_SECONDS = 0.02
_Kind = Policy.Kind
# UnicodeError: a key, version or time that cannot be decoded.
_SOURCE_ERRORS = (SourceUnavailable, SourceRefused, SourceMismatch, InvalidInput, UnicodeError)


class PolicyPoll:
    """A policy has a thread of its own: a source that hangs holds up no other policy.

    Everything belongs to that thread; the poller's loop calls `facts`, which may be a moment old.
    """

    def __init__(
        self,
        policy_id: int,
        holder: str,
        policies: Policies,
        crms: Crms,
        count_rounds: Callable[[int], None],
    ) -> None:
        self.policy_id, self._holder = policy_id, holder
        self._policies, self._crms, self._count_rounds = policies, crms, count_rounds
        self._next_load, self._load = Every(_LOOK_SECONDS), 1.0  # of the database
        self._trouble = Backoff(first=1.0, factor=2.0, cap=60.0)
        # A CRM may be held for a day: look at its queue less and less often.
        self._full = Backoff(first=_FULL_SECONDS, factor=1.2, cap=_IDLE_SECONDS)
        self._parts: tuple[DistributionCenter, Changes, Comparison] | None = None
        self._source: Source | None = None
        self._increment: Increment | None = None
        # The policy with the accepted request: `policies` still shows the request for two seconds.
        self._taken_request: Policy | None = None
        self._looked_at: datetime | None = None  # the last look without further rows
        self._compared_at: datetime | None = None  # `swept_at`, two seconds before `policies`
        self._problem, self._problem_since = "", 0.0
        self._has_more, self._next_due = False, Every(_DUE_SECONDS)
        self._had_due = False  # the last turn queued due records
        self._next_guard = Every(_GUARD_SECONDS)
        self._read_at = 0.0  # monotonic; a failed source is not read before

    # -- a turn ----------------------------------------------------------------------------------
    def turn(self) -> float:
        """Returns seconds until the next turn. Raises RedisError and OperationalError."""
        policy = self._policies.get(self.policy_id)
        crm = self._crms.get(policy.crm_id) if policy else None
        if not (policy and policy.enabled and crm and crm.takes_work):
            return _IDLE_SECONDS
        try:
            return self._turn(policy, crm)
        except _SOURCE_ERRORS as error:
            pause = self._report(policy, str(error))
            self._read_at = time.monotonic() + pause  # due records are sent meanwhile
            return min(pause, _IDLE_SECONDS)
        except LeaseLost as error:
            log.warning("policy_lost", policy=str(policy), why=str(error))
            # Another poller holds the policy: run and watermark in memory are out of date.
            self._parts = None
            return _IDLE_SECONDS
        except UNAVAILABLE:
            # The round may be stored despite the error: read run, watermark and early rows again.
            self._parts = self._source = None
            raise
        except Exception as error:  # one policy must not end the thread that retries it
            log.exception("policy_failed", policy=str(policy))
            return self._report(policy, f"{type(error).__name__}: see the poller's log.")

    def _turn(self, policy: Policy, crm: Crm) -> float:
        if self._parts is None:
            center = DistributionCenter(policy)
            changes = Changes(policy, self._holder, center)
            self._parts = center, changes, Comparison(policy, self._holder, center)
        center, changes, comparison = self._parts
        live = presence.crms.read_by_id().get(crm.id)
        capacity = center.capacity(crm, live)
        # The guard is asked while records are held; seldom as long as it can only wait.
        is_reading = changes.run > 0 or comparison.run > 0
        can_settle = not (is_reading or policy.is_stopped)
        if center.has_held and (can_settle or self._next_guard.take()):
            center.has_held = removal_guard.settle(policy, self._holder, is_reading)
        now = sql.now()  # records that the guard has let go are due at once
        pause = self._read_at - time.monotonic()
        look_in = self._wait(policy, changes, live, now)
        may_compare = comparison.may_go_on(policy, now)
        wait = max(pause, look_in)
        should_read = wait <= 0 or (pause <= 0 and may_compare)
        if capacity:
            self._full.reset()
            self._had_due = self._is_due(policy, now, should_read)
            if self._had_due:
                center.retry(crm, due.claim(policy, crm.id, capacity))
                capacity = center.capacity(crm, live)
        if not (should_read or self._had_due):
            if look_in > 0 and not (may_compare or schedule.is_open(policy.hours, now)):
                self._clear_problem()  # no read would show that it is repaired
            return min(wait, _IDLE_SECONDS if capacity else self._full.next())
        if not capacity:
            return self._full.next()
        if not should_read:
            return 0.0  # more records may be due
        limit = min(capacity, policy.batch_size)
        source = source_from_row(policy.source)
        if self._increment is None or source != self._source:
            zone = self._increment.zone if self._increment else None
            self._increment, self._source = Increment(source, zone), source
        increment = self._increment
        if wait <= 0:
            if self._requested_kind(policy) in (_Kind.CHANGES, _Kind.FULL):
                changes.request(policy, increment)
                self._taken_request = policy
            self._has_more = changes.round(policy, crm, increment, limit)
            self._looked_at = None if self._has_more else now
            self._clear_problem()
            self._trouble.reset()
        is_requested = self._requested_kind(policy) == _Kind.SWEEP
        can_begin = not comparison.run or (is_requested and not comparison.may_go_on(policy, now))
        if can_begin and (is_requested or self._is_sweep_due(policy, now)):
            comparison.begin(policy, is_requested)
            self._taken_request = policy
            self._compared_at = now
        if comparison.may_go_on(policy, now):
            try:
                comparison.round(policy, crm, source, increment, limit)
            except SourceMismatch as error:  # without versions changes can still be read
                comparison.end(str(error))
        self._count_rounds(1)
        return 0.0

    def _is_due(self, policy: Policy, now: datetime, should_read: bool) -> bool:
        """True if a record is due and its turn has come: a long resend must not hold up new leads.
        While pages follow each other, the database is not asked for each page."""
        if should_read and (self._had_due or (self._has_more and not self._next_due.take())):
            return False
        self._next_due.restart()
        return due.is_due(policy.id, now)

    def _wait(
        self, policy: Policy, changes: Changes, live: presence.LiveCrm | None, now: datetime
    ) -> float:
        """Seconds until the next look for changes."""
        if self._requested_kind(policy) or changes.may_go_on(policy, now):
            return 0.0
        if self._is_sweep_due(policy, now):
            return 0.0
        if self._looked_at and self._looked_at > now:  # the database's clock went back
            self._looked_at = now
        if self._next_load.take():
            statements = engines.of().running_statements(connection)
            self._load = statements / (_THREADS_A_CORE * (os.cpu_count() or 1))
        slowness = live.latency / _SLOW_ANSWER if live else 1.0
        interval = policy.interval_seconds * min(_MAX_FACTOR, max(1.0, self._load, slowness))
        due_at = schedule.next_look(now, self._looked_at, interval, policy.cron, policy.hours)
        return max(0.0, (due_at - now).total_seconds())

    def _requested_kind(self, policy: Policy) -> str:
        return "" if policy is self._taken_request else policy.requested

    def _is_sweep_due(self, policy: Policy, now: datetime) -> bool:
        if not policy.sweep_cron or not policy.source.version_column:
            return False
        swept_at = policy.swept_at or policy.created_at
        past_sweeps = [at for at in (swept_at, self._compared_at) if at and at <= now]
        if not past_sweeps:  # the database's clock went back: begin anew
            self._compared_at = now
            return False
        is_due = schedule.next_time(policy.sweep_cron, max(past_sweeps)) <= now
        return is_due and schedule.is_open(policy.hours, now)  # else when the hours begin

    # -- the source ------------------------------------------------------------------------------
    def _report(self, policy: Policy, problem: str) -> float:
        """Write to the exception log, once per problem, why the source cannot be read. Returns the
        pause in seconds."""
        self._source = None  # read the table's description again: it may be corrected
        if problem != self._problem:
            log.warning("source_not_read", policy=str(policy), why=problem)
            ExceptionEntry.objects.create(
                id=ids.new(ids.bucket(policy.id, None)), policy_id=policy.id, kind="source",
                message=problem[:MAX_MESSAGE], at=sql.now(),
            )  # fmt: skip
            self._problem_since = self._problem_since or time.time()
        self._problem = problem
        pause = self._trouble.next()
        # The platform's own database is unavailable for moments only; others get longer pauses.
        return pause if policy.source.database else min(pause, MAX_AWAY_PAUSE)

    def _clear_problem(self) -> None:
        self._problem, self._problem_since = "", 0.0

    def facts(self) -> PolicyFacts:
        """The state of the source, for console, metrics and alerts; called by another thread."""
        problem_for = time.time() - self._problem_since if self._problem else 0.0
        facts = self._parts[1].facts if self._parts else None
        if facts is None:
            return PolicyFacts(problem=self._problem, problem_for=problem_for)
        return PolicyFacts(
            facts.age.total_seconds(), facts.waiting, facts.exact, self._problem, problem_for,
            facts.without_time,
        )  # fmt: skip
