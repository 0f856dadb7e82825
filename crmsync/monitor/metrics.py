"""The state of CRM sync right now, for the overview and `/metrics`."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from django.utils.translation import gettext as _

from crmsync import orders, presence
from crmsync.models import Crm, Record
from crmsync.monitor import backlog, counters
from crmsync.monitor.backlog import PolicyProgress
from msgplatform.core.connections import RedisError
from msgplatform.core.data import sql
from msgplatform.core.flows.health import Status, Wait
from msgplatform.core.flows.metric import Metrics, Sample
from msgplatform.core.flows.text import ViewLink
from msgplatform.core.lazy_text import lazy_message
from msgplatform.core.queues import jobs
from msgplatform.core.rates.breaker import STATE_NUMBERS

_HOUR = timedelta(hours=1)
# Numbers, because a metric has no words.
_UP_TO = f"counted up to {backlog.MAX_COUNT:,}"


def status() -> Status:
    """The line of the overview. The backlog has the records that are neither confirmed nor dead."""
    now = sql.now()
    policies = backlog.of_policies(now)
    by_state: Counter[int] = Counter()
    for (_policy, state), count in backlog.counts(
        progress.policy.pk for progress in policies
    ).items():
        by_state[state] += count
    facts: dict[str, int | float | str] = {}
    for state in Record.OPEN:
        count = by_state[state]
        if count >= backlog.MAX_COUNT:  # the backlog is larger then
            facts[str(state.label)] = _("%d or more") % count
        elif count and state == Record.State.RETRY:
            facts[str(state.label)] = count
    paused_names = sorted(
        {str(progress.policy.crm) for progress in policies if progress.policy.crm.paused_at}
    )
    bad: dict[str, ViewLink] = {}
    if paused_names:
        facts[_("paused")] = ", ".join(paused_names)
        bad[_("paused")] = ViewLink("admin:crmsync_crm_changelist")
    # Records of a paused CRM are not late: a person knows of the pause.
    ages: dict[str, float] = {}
    for progress in policies:
        if (age := _overdue(progress, now)) and progress.takes_work:
            crm = str(progress.policy.crm_id)
            ages[crm] = max(age, ages.get(crm, 0.0))
    waiting = sum(by_state[state] for state in Record.OPEN)
    return Status(waiting, max(ages.values(), default=None), facts, bad=bad, oldest_by=ages)


def waits() -> Iterator[Wait]:
    """The oldest due record at each CRM that takes work. The platform alerts when it waits long."""
    now, due_by_crm = sql.now(), dict[Crm, datetime]()
    for progress in backlog.of_policies(now):
        if progress.takes_work and progress.due_at is not None and progress.due_at <= now:
            crm = progress.policy.crm
            due_by_crm[crm] = min(progress.due_at, due_by_crm.get(crm, now))
    for crm, due_at in due_by_crm.items():
        yield Wait(str(crm.pk), lazy_message("A record for %(crm)s", crm=str(crm)), due_at)


# -- /metrics ------------------------------------------------------------------------------------
METRICS = Metrics()
_POLICY = ("crm", "source")
_RECORDS = METRICS.gauge(
    "crmsync_records", f"Records that are not confirmed; {_UP_TO}", *_POLICY, "state"
)
_OLDEST_DUE = METRICS.gauge(
    "crmsync_oldest_due_seconds",
    "How long the oldest due record has waited; 0 while its CRM or policy takes no work",
    *_POLICY,
)
_SINCE_CONFIRMED = METRICS.gauge(
    "crmsync_since_confirmed_seconds",
    "Since the minute of the last confirmed record, at most a day",
    *_POLICY,
)
_WATERMARK_AGE = METRICS.gauge(
    "crmsync_watermark_age_seconds", "Since the watermark moved", *_POLICY
)
# A gauge, because the counters behind it are deleted later.
_LAST_HOUR = METRICS.gauge(
    "crmsync_records_last_hour",
    "What became of records in the last hour: read, unchanged, confirmed, dead, and failed tries "
    "by their outcome",
    *(*_POLICY, "what"),
)
_PAUSED = METRICS.gauge("crmsync_paused", "1 while a CRM is paused", "crm")
_REDIS_UP = METRICS.gauge(
    "crmsync_redis_up", "1 when the work Redis answers; 0: what it holds is missing here"
)
_QUEUE_ORDERS = METRICS.gauge(
    "crmsync_queue_orders",
    "Work orders that wait or are in a handler's hands, by queue: main, retry, dead",
    *("crm", "queue"),
)
_CALL_SECONDS = METRICS.gauge("crmsync_call_seconds", "What a call takes, a moving mean", "crm")
_PER_SECOND = METRICS.gauge("crmsync_per_second", "Records answered a second, under load", "crm")
_IN_FLIGHT = METRICS.gauge("crmsync_in_flight", "Records in calls without an answer", "crm")
_HELD = METRICS.gauge("crmsync_held_seconds", "Until the next call to a CRM may go", "crm")
_BREAKERS = METRICS.gauge("crmsync_breaker", "0 closed, 1 half-open (probing), 2 open", "crm")
_POLICY_HELD = METRICS.gauge("crmsync_policy_held", "1 while a poller holds the policy", *_POLICY)
_HORIZON_AGE = METRICS.gauge(
    "crmsync_horizon_age_seconds",
    "Age of the time up to which its source can be read; grows while a transaction is open; no "
    "sample while that time is only assumed",
    *_POLICY,
)
_BEYOND = METRICS.gauge(
    "crmsync_beyond_horizon", "Rows that cannot be read yet, counted up to 1,000", *_POLICY
)
_READABLE = METRICS.gauge(
    "crmsync_source_readable", "0 while the source of a policy is not read", *_POLICY
)


def samples() -> Iterator[Sample]:
    now = sql.now()
    policies = backlog.of_policies(now)
    counts = backlog.counts(progress.policy.pk for progress in policies)
    for progress in policies:
        for state in backlog.NOT_CONFIRMED:
            name = Record.State(state).name.lower()
            yield _RECORDS.of(counts[progress.policy.pk, state], **progress.labels, state=name)
        overdue = _overdue(progress, now) if progress.takes_work else None
        yield _OLDEST_DUE.of(overdue or 0.0, **progress.labels)
        # If no record is confirmed, the metric has its maximum.
        confirmed_at = progress.confirmed_at or now - backlog.LOOK_BACK
        yield _SINCE_CONFIRMED.of(max(0.0, (now - confirmed_at).total_seconds()), **progress.labels)
        if progress.moved_at is not None:
            yield _WATERMARK_AGE.of(
                max(0.0, (now - progress.moved_at).total_seconds()), **progress.labels
            )
    hour = counters.since(now - _HOUR)
    labels = {progress.policy.pk: progress.labels for progress in policies}
    for (policy, name), count in sorted(hour.items()):
        if policy in labels and name not in (counters.CALLS, counters.CALL_MS):
            yield _LAST_HOUR.of(count, **labels[policy], what=name)
    crms = list(Crm.objects.only("name", "enabled", "paused_at").order_by("name"))
    for crm in crms:
        yield _PAUSED.of(crm.paused_at is not None, crm=crm.name)
    try:
        redis_samples = list(_redis_samples(crms, policies))
    except RedisError:  # Redis is unavailable: show the database's samples
        yield _REDIS_UP.of(0)
        return
    yield from redis_samples
    yield _REDIS_UP.of(1)


def _redis_samples(crms: Sequence[Crm], policies: Sequence[PolicyProgress]) -> Iterator[Sample]:
    """The queues of CRMs, and the reports of handlers and pollers on their CRMs and policies."""
    # All depths in one round trip.
    kinds = (orders.MainQueue, orders.RetryQueue, orders.DeadQueue)
    queue_names = {kind(crm.name).name: (crm.name, kind.kind) for crm in crms for kind in kinds}
    for name, depth in jobs.depths(list(queue_names)).items():
        crm, kind = queue_names[name]
        yield _QUEUE_ORDERS.of(depth, crm=crm, queue=kind)
    names = {crm.pk: crm.name for crm in crms}
    for pk, live in sorted(presence.crms.read_by_id().items()):
        if pk not in names:  # it was deleted
            continue
        yield _CALL_SECONDS.of(live.latency, crm=names[pk])
        yield _PER_SECOND.of(live.per_second, crm=names[pk])
        yield _IN_FLIGHT.of(live.in_flight, crm=names[pk])
        yield _HELD.of(live.held_for, crm=names[pk])
        yield _BREAKERS.of(STATE_NUMBERS[live.breaker], crm=names[pk])
    # The reports of pollers on the policies that they hold.
    facts = presence.policies.read_by_id()
    for progress in policies:
        policy_facts = facts.get(progress.policy.pk)
        yield _POLICY_HELD.of(policy_facts is not None, **progress.labels)
        if policy_facts is None:
            continue
        if policy_facts.exact:  # an assumed horizon is as old as the source's `lag` says
            yield _HORIZON_AGE.of(policy_facts.horizon_age, **progress.labels)
        yield _BEYOND.of(policy_facts.waiting, **progress.labels)
        yield _READABLE.of(not policy_facts.problem, **progress.labels)


def _overdue(progress: PolicyProgress, now: datetime) -> float | None:
    """Seconds since the oldest due record was due; None without progress."""
    if progress.due_at is None or progress.due_at > now:
        return None
    return (now - progress.due_at).total_seconds()
