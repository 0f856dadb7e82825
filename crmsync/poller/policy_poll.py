"""One policy in the poller, round by round.

    each turn    queue the records that are due
    when it is time, or somebody asked      read what changed (a run of changes, or of everything)
    when its schedule says so, or somebody asked      compare versions (a sweep), page by page

A round reads one page and stores it; between two rounds the policy is looked at again, so that a
long run notices what people change.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec

from crmsync import models, presence
from crmsync.directory import Crm, Crms, Policies, Policy
from crmsync.models.operations import MAX_MESSAGE
from crmsync.policies import schedule
from crmsync.poller import due
from crmsync.poller.changes import Changes
from crmsync.poller.comparison import Comparison
from crmsync.poller.distribution import DistributionCenter
from crmsync.poller.pace import Pace
from crmsync.poller.reading.increment import Increment
from crmsync.poller.reading.source import (
    Columns,
    Source,
    SourceMismatch,
    SourceRefused,
    SourceUnavailable,
)
from crmsync.presence import PolicyFacts
from msgplatform.core import logging
from msgplatform.core.data import ids, sql
from msgplatform.core.errors import UNAVAILABLE, InvalidInput, LeaseLost
from msgplatform.core.rates.backoff import Backoff

log = logging.get(__name__)

# The pause without work: records that become due, and changes in the console, wait so long at most.
_IDLE_SECONDS = 1.0
# The first pause while the CRM's queues are full: handlers empty them within milliseconds.
_FULL_SECONDS = 0.02
_Kind = models.Policy.Kind
_SOURCE_ERRORS = (SourceUnavailable, SourceRefused, SourceMismatch, InvalidInput)


class PolicyPoll:
    """Its turn is called by a thread of its own: a source that hangs holds up no other policy.

    Everything belongs to that thread; the poller's loop calls `facts`, which may be a moment old.
    """

    def __init__(
        self,
        policy_id: int,
        holder: str,
        policies: Policies,
        crms: Crms,
        worked: Callable[[int], None],
    ) -> None:
        self.policy_id, self._holder = policy_id, holder
        self._policies, self._crms, self._worked = policies, crms, worked
        self._pace = Pace()
        self._trouble = Backoff(first=1.0, factor=2.0, cap=60.0)
        # A CRM may be held for a day; its queue is looked at ever less often.
        self._full = Backoff(first=_FULL_SECONDS, factor=1.2, cap=_IDLE_SECONDS)
        self._parts: tuple[DistributionCenter, Changes, Comparison] | None = None
        self._source: Source | None = None
        self._increment: Increment | None = None
        # The policy whose request was taken: `policies` shows that request for two seconds more.
        self._asked: Policy | None = None
        self._looked: datetime | None = None  # the last look that found nothing more
        self._compared: datetime | None = None  # as `swept_at`, which is known two seconds later
        self._problem, self._problem_since = "", 0.0

    # -- a turn ----------------------------------------------------------------------------------
    def turn(self) -> float:
        """Seconds until the next one. Raises RedisError and OperationalError."""
        policy = self._policies.get(self.policy_id)
        crm = self._crms.get(policy.crm_id) if policy else None
        if not (policy and policy.enabled and crm and crm.takes_work):
            return _IDLE_SECONDS
        try:
            return self._turn(policy, crm)
        except _SOURCE_ERRORS as error:
            return self._report(policy, str(error))
        except LeaseLost as error:
            log.warning("policy_lost", policy=policy.name, why=str(error))
            # Another poller went on from here: the run and watermark in memory are out of date.
            self._parts = None
            return _IDLE_SECONDS
        except UNAVAILABLE:
            raise
        except Exception as error:  # one policy must not end the thread that retries it
            log.exception("policy_failed", policy=policy.name)
            return self._report(policy, f"{type(error).__name__}: see the poller's log.")

    def _turn(self, policy: Policy, crm: Crm) -> float:
        if self._parts is None:
            center = DistributionCenter(policy)
            changes = Changes(policy, self._holder, center)
            self._parts = center, changes, Comparison(policy, self._holder, center)
        center, changes, comparison = self._parts
        live = presence.read_crms().get(crm.id)
        capacity = center.capacity(crm, live)
        now = sql.now()
        # What is due comes first: it is older than what a look would find.
        if capacity and due.is_due(policy.id, now):
            center.retry(crm, due.claim(policy, crm.id, capacity))
            capacity = center.capacity(crm, live)
        wait = self._wait(policy, changes, live, now)
        if wait > 0 and not _goes_on(comparison, policy, now):
            return min(wait, _IDLE_SECONDS)
        if not capacity:
            return self._full.next()
        self._full.reset()
        limit = min(capacity, policy.batch_size)
        source, increment = self._opened(policy)
        if self._requested(policy) in (_Kind.CHANGES, _Kind.FULL):
            changes.request(policy, increment)
            self._asked = policy
        if wait <= 0:
            more = changes.round(policy, crm, increment, limit)
            self._looked = None if more else now
            self._problem, self._problem_since = "", 0.0
            self._trouble.reset()
        self._compare(policy, crm, comparison, source, increment, limit, now)
        self._worked(1)
        return 0.0

    def _wait(
        self, policy: Policy, changes: Changes, live: presence.LiveCrm | None, now: datetime
    ) -> float:
        """Seconds until it is time to look for changes."""
        if self._requested(policy) or _goes_on(changes, policy, now):
            return 0.0
        if self._looked and self._looked > now:  # the database's clock went back
            self._looked = now
        interval = policy.interval * self._pace.factor(live)
        due_at = schedule.next_look(now, self._looked, interval, policy.cron, policy.hours)
        if self._sweep_is_due(policy, now):
            return 0.0
        return max(0.0, (due_at - now).total_seconds())

    def _compare(
        self,
        policy: Policy,
        crm: Crm,
        comparison: Comparison,
        source: Source,
        increment: Increment,
        limit: int,
        now: datetime,
    ) -> None:
        requested = self._requested(policy) == _Kind.SWEEP
        if not comparison.run or (requested and not _goes_on(comparison, policy, now)):
            if not (requested or self._sweep_is_due(policy, now)):
                return
            comparison.begin(policy, requested)
            self._asked = policy
            self._compared = now
        if _goes_on(comparison, policy, now):
            try:
                comparison.round(policy, crm, source, increment, limit)
            except SourceMismatch as error:  # without versions changes can still be read
                comparison.fail(str(error))

    def _requested(self, policy: Policy) -> str:
        return "" if policy is self._asked else policy.requested

    def _sweep_is_due(self, policy: Policy, now: datetime) -> bool:
        if not policy.sweep_cron or not policy.source.version_column:
            return False
        known = [at for at in (policy.swept_at, self._compared) if at and at <= now]
        if not known:  # the database's clock went back: the schedule goes on from here
            self._compared = now
            return False
        is_due = schedule.next_time(policy.sweep_cron, max(known)) <= now
        return is_due and schedule.is_open(policy.hours, now)  # else when they begin

    # -- the source ------------------------------------------------------------------------------
    def _opened(self, policy: Policy) -> tuple[Source, Increment]:
        source = described(policy.source)
        if self._increment is None or source != self._source:
            self._increment, self._source = Increment(source), source
        return source, self._increment

    def _report(self, policy: Policy, problem: str) -> float:
        """The source cannot be read: the exception log says so, once for each problem. Returns the
        pause."""
        self._increment = None  # the next turn looks at the table anew: it may have been corrected
        if problem != self._problem:
            log.warning("source_not_read", policy=policy.name, why=problem)
            models.ExceptionEntry.objects.create(
                id=ids.new(ids.bucket(policy.id, None)), policy_id=policy.id, kind="source",
                message=problem[:MAX_MESSAGE], at=sql.now(),
            )  # fmt: skip
            self._problem_since = self._problem_since or time.time()
        self._problem = problem
        return self._trouble.next()

    def facts(self) -> PolicyFacts:
        """For console, metrics and alerts; called by another thread."""
        read = self._parts[1].facts if self._parts else None
        facts = PolicyFacts(
            problem=self._problem,
            problem_for=time.time() - self._problem_since if self._problem else 0.0,
        )
        if read is None:
            return facts
        return msgspec.structs.replace(
            facts, horizon_age=read.age.total_seconds(), waiting=read.waiting, exact=read.exact,
            without_time=read.without_time,
        )  # fmt: skip


def described(row: models.Source) -> Source:
    """A source as the poller reads it. Raises InvalidInput, Undecryptable."""
    columns = Columns(
        row.key_column, row.time_column, row.deleted_column, row.version_column,
        tuple(row.value_columns),
    )  # fmt: skip
    return Source(row.table, columns, row.database, row.zone, timedelta(seconds=row.lag_seconds))


def _goes_on(going: Changes | Comparison, policy: Policy, now: datetime) -> bool:
    """Whether a run that has begun may go on now: one that somebody asked for may at any hour."""
    return going.run > 0 and (going.is_requested or schedule.is_open(policy.hours, now))
