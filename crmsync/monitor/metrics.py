"""The state of CRM sync right now, for the overview and `/metrics`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from django.utils.translation import gettext as _

from crmsync import queues
from crmsync.models import Crm, Record
from crmsync.monitor import backlog, counters, crm_status, poller_status
from crmsync.monitor.backlog import Standing
from msgplatform.core.connections import RedisError
from msgplatform.core.data import sql
from msgplatform.core.flows import Sample, Status, Wait
from msgplatform.core.queues import jobs
from msgplatform.core.rates.breaker import State

_HOUR = timedelta(hours=1)
# As numbers, since metrics have no words.
_BREAKER = {State.CLOSED: 0, State.HALF_OPEN: 1, State.OPEN: 2}
_UP_TO = f"counted up to {backlog.COUNTED:,}"


def status() -> Status:
    """The line of the overview. Its backlog: records that are not confirmed and not dead."""
    now = sql.now()
    standings = backlog.standings(now)
    by_state: Counter[int] = Counter()
    for (_policy, state), count in backlog.counts(one.policy.pk for one in standings).items():
        by_state[state] += count
    hour: Counter[str] = Counter()
    for (_policy, name), count in counters.since(now - _HOUR).items():
        hour[name] += count
    facts: dict[str, int | float | str] = {
        str(Record.State(state).label): (
            count if count < backlog.COUNTED else _("%d or more") % count
        )
        for state, count in by_state.items()
        if count
    }
    facts[_("confirmed in the last hour")] = hour[counters.CONFIRMED]
    paused = sorted({str(one.policy.crm) for one in standings if one.policy.crm.paused_at})
    if paused:
        facts[_("paused")] = ", ".join(paused)
    # What waits for a paused CRM is no delay: a person knows of it.
    ages = [age for one in standings if (age := _overdue(one, now)) and one.takes_work]
    return Status(sum(by_state[state] for state in Record.OPEN), max(ages, default=None), facts)


def waits() -> Iterator[Wait]:
    """The oldest due record at each CRM that takes work; the platform alerts when it waits long."""
    now, first = sql.now(), dict[Crm, datetime]()
    for one in backlog.standings(now):
        if one.takes_work and one.due_at is not None and one.due_at <= now:
            first[one.policy.crm] = min(one.due_at, first.get(one.policy.crm, now))
    for crm, since in first.items():
        yield Wait(str(crm.pk), _("A record for %s") % crm, since)


def samples() -> Iterator[Sample]:
    """Everything that `/metrics` says about CRM sync."""
    now = sql.now()
    standings = backlog.standings(now)
    yield from _backlog(standings, now)
    yield from _last_hour(standings, now)
    crms = list(Crm.objects.only("name", "enabled", "paused_at").order_by("name"))
    for crm in crms:
        yield Sample(
            "crmsync_paused", crm.paused_at is not None, {"crm": crm.name}, "1 while it is paused"
        )
    try:
        found = [*_crms(crms), *_policies(standings)]
    except RedisError:  # what the database says is still there to be read
        yield Sample("crmsync_redis_up", 0, help="1 when the work Redis answers")
        return
    yield from found
    yield Sample("crmsync_redis_up", 1, help="1 when the work Redis answers")


def _backlog(standings: Sequence[Standing], now: datetime) -> Iterator[Sample]:
    counted = backlog.counts(one.policy.pk for one in standings)
    for one in standings:
        for state in backlog.NOT_CONFIRMED:
            yield Sample(
                "crmsync_records", counted[one.policy.pk, state],
                {**one.labels, "state": Record.State(state).name.lower()},
                f"Records that are not confirmed, by state; {_UP_TO}",
            )  # fmt: skip
    for one in standings:
        yield Sample(
            "crmsync_oldest_due_seconds", _overdue(one, now) or 0.0, one.labels,
            "How long the oldest due record has waited",
        )  # fmt: skip
        # Without one that was found it is as old as can be said.
        confirmed = one.confirmed_at or now - backlog.LOOKED_BACK
        yield Sample(
            "crmsync_since_confirmed_seconds", max(0.0, (now - confirmed).total_seconds()),
            one.labels, "Since the minute of the last confirmed record, at most a day",
        )  # fmt: skip
        if one.moved_at is not None:
            yield Sample(
                "crmsync_watermark_age_seconds", max(0.0, (now - one.moved_at).total_seconds()),
                one.labels, "Since the watermark moved",
            )  # fmt: skip


def _last_hour(standings: Sequence[Standing], now: datetime) -> Iterator[Sample]:
    """Gauges of the last hour, not counters: the rows behind them are deleted after a while."""
    hour = counters.since(now - _HOUR)
    labels = {one.policy.pk: one.labels for one in standings}
    for (policy, name), count in sorted(hour.items()):
        if policy in labels and name not in (counters.CALLS, counters.CALL_MS):
            yield Sample(
                "crmsync_records_last_hour", count, {**labels[policy], "what": name},
                "What became of records in the last hour: read, unchanged, confirmed, dead, and "
                "failed tries by their outcome",
            )  # fmt: skip


def _crms(crms: Sequence[Crm]) -> Iterator[Sample]:
    """The queues of each CRM, and what handlers report of the CRMs that they serve."""
    # All depths in one round trip.
    kinds = (queues.MainQueue, queues.RetryQueue, queues.DeadQueue)
    named = {kind(crm.name).name: (crm.name, kind.kind) for crm in crms for kind in kinds}
    for name, depth in jobs.depths(list(named)).items():
        crm, kind = named[name]
        yield Sample(
            "crmsync_queue_orders", depth, {"crm": crm, "queue": kind},
            "Work orders that wait or are in a handler's hands",
        )  # fmt: skip
    names = {crm.pk: crm.name for crm in crms}
    for pk, live in sorted(crm_status.read().items()):
        if pk not in names:  # it was deleted
            continue
        labels = {"crm": names[pk]}
        yield Sample("crmsync_call_seconds", live.latency, labels, "What a call takes, moving mean")
        yield Sample("crmsync_per_second", live.per_second, labels, "Records answered, under load")
        yield Sample("crmsync_in_flight", live.in_flight, labels, "Calls without an answer")
        yield Sample("crmsync_held_seconds", live.held_for, labels, "Until the next call may go")
        yield Sample(
            "crmsync_breaker",
            _BREAKER[live.breaker],
            labels,
            "0 closed, 1 half-open (probing), 2 open",
        )


def _policies(standings: Sequence[Standing]) -> Iterator[Sample]:
    """What pollers report of the policies that they hold."""
    facts = poller_status.read()
    for one in standings:
        known = facts.get(one.policy.pk)
        yield Sample(
            "crmsync_policy_held",
            known is not None,
            one.labels,
            "1 while a poller holds the policy",
        )
        if known is None:
            continue
        yield Sample(
            "crmsync_horizon_age_seconds", known.horizon_age, one.labels,
            "Age of the time up to which its source can be read; grows while a transaction is open",
        )  # fmt: skip
        yield Sample(
            "crmsync_beyond_horizon", known.waiting, one.labels,
            "Rows that cannot be read yet, counted up to 1,000",
        )  # fmt: skip
        yield Sample(
            "crmsync_source_readable",
            not known.problem,
            one.labels,
            "0 while its source is not read",
        )


def _overdue(one: Standing, now: datetime) -> float | None:
    """How long its oldest due record has been due; None when no record is."""
    if one.due_at is None or one.due_at > now:
        return None
    return (now - one.due_at).total_seconds()
