"""Alerts that stay open as long as a condition holds, and the lines of `doctor`. The platform's
watch asks for the alerts every few seconds, whether poller and handler run or not."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
from django.db import connection
from django.db.models import Q
from django.utils.translation import gettext_noop as _

from crmsync import presence
from crmsync.models import Crm, Policy, Record, lead_triggers
from crmsync.monitor import backlog, counters
from crmsync.monitor.backlog import PolicyProgress
from crmsync.monitor.failures import CRM
from crmsync.presence import PolicyFacts
from msgplatform import env
from msgplatform.core.alerts import Condition
from msgplatform.core.connections import work_redis, write_into_full
from msgplatform.core.data import migration_stages, sql
from msgplatform.core.flows.health import Finding, Runbook
from msgplatform.core.lazy_text import lazy_message
from msgplatform.monitor.alert_store import open_conditions, unless_away

PAUSED, SOURCE, HORIZON = "crm.paused", "crm.source", "crm.horizon"
STALLED, DEAD, RECOVERY = "crm.stalled", "crm.dead", "crm.recovery"
REMOVALS = "crm.removals"
KINDS = (PAUSED, SOURCE, HORIZON, STALLED, DEAD, RECOVERY, REMOVALS)

UNREADABLE_SECONDS = 60.0
HORIZON_SECONDS = 600.0
STALLED_SECONDS = 600.0
MAX_DEAD_SHARE, MIN_ENDED = 0.05, 20  # of the records that ended in the last hour
OPEN_FOR = timedelta(days=1)
# Key of the last look at stalled CRMs, in the work Redis.
STALLS = "crm:stalls"
# Seconds. After a longer gap between two looks the platform was stopped: the gap is not counted.
_MAX_GAP_SECONDS = 120.0
_MAX_ENTRIES = 1_000
_IN_FLIGHT = int(Record.State.QUEUED)
_HOUR = timedelta(hours=1)


class _Stalls(msgspec.Struct):
    """The state of CRMs with records in the backlog, at the look at time `at` (unix seconds).

    `crms`: id → the time of the last confirmed record, and the seconds since then with records due
    or in flight. `busy` are the CRMs with such records at the look.
    """

    at: float
    crms: dict[int, tuple[float, float]]
    busy: list[int]


def conditions() -> Iterator[Condition]:
    """The conditions that hold now. Raises errors of the database."""
    now = sql.now()
    # A sandbox fails only if an operator has chosen a failure.
    policies = [
        progress
        for progress in backlog.of_policies(now)
        if progress.policy.crm.adapter != Crm.SANDBOX
    ]
    working = [progress for progress in policies if progress.takes_work]
    # The CRMs that are paused because they refused the credentials, until somebody resumes them.
    rows = Crm.objects.filter(enabled=True, paused_at__isnull=False).exclude(paused_because="")
    rows = rows.exclude(adapter=Crm.SANDBOX)
    for row in rows.only("name", "paused_because"):
        yield Condition.of(
            f"{PAUSED}:{row.pk}",
            _("The CRM %(name)s refuses the credentials and is paused"),
            _("%(why)s Correct its settings in the console and resume it; its records wait."),
            name=str(row),
            why=row.paused_because,
        )
    for progress in policies:
        policy = progress.policy
        if policy.is_stopped and policy.enabled and policy.crm.enabled:
            yield Condition(
                f"{REMOVALS}:{policy.pk}",
                lazy_message(
                    "%(policy)s would delete or clear %(removals)d of %(records)d records",
                    policy=str(policy),
                    removals=policy.stopped_removals,
                    records=policy.stopped_records,
                ),
                lazy_message(
                    "None of these was sent to %(crm)s; other changes go on. Look whether the "
                    "source is as it should be, then confirm or refuse on the policy's page.",
                    crm=str(policy.crm),
                ),
            )
    yield from unless_away(
        lambda: _source_trouble(working, presence.policies.read_by_id()), SOURCE, HORIZON
    )
    yield from unless_away(lambda: _find_stalls(working, now), STALLED)
    hour = counters.since(now - _HOUR)
    for progress in policies:
        policy = progress.policy
        dead_count = hour[policy.pk, counters.DEAD]
        ended_count = dead_count + hour[policy.pk, counters.CONFIRMED]
        if ended_count >= MIN_ENDED and dead_count > MAX_DEAD_SHARE * ended_count:
            yield Condition.of(
                f"{DEAD}:{policy.pk}",
                _("%(policy)s: %(dead)d of %(ended)d records are dead"),
                _(
                    "That was in the last hour. See in the recovery log what they were refused "
                    "for. Correct the data and try them again there, or correct the mapping "
                    "and start a run of everything: a try sends what the old mapping made."
                ),
                policy=str(policy),
                dead=dead_count,
                ended=ended_count,
            )
    count = backlog.count_open_entries(now - OPEN_FOR, _MAX_ENTRIES)
    if count:
        more = lazy_message("%(count)d or more", count=count)
        yield Condition.of(
            f"{RECOVERY}:old",
            _("Entries of the recovery log open for more than a day: %(count)s"),
            _(
                "Nobody sends these records unless somebody decides: try them again, correct "
                "them or dismiss them in the console."
            ),
            count=more if count == _MAX_ENTRIES else str(count),
        )


def _find_stalls(working: Sequence[PolicyProgress], now: datetime) -> Iterator[Condition]:
    """CRMs that confirm no record although records are due or in flight for them. Time without a
    due record, or in which a CRM wants fewer calls, is not counted."""
    counts = backlog.counts([progress.policy.pk for progress in working], Record.OPEN, limit=1)
    waiting = [
        progress for progress in working if any(counts[progress.policy.pk, s] for s in Record.OPEN)
    ]
    confirmed_at = {progress.policy.crm_id: 0.0 for progress in waiting}
    for progress in working:
        crm = progress.policy.crm_id
        if crm in confirmed_at and progress.confirmed_at is not None:
            confirmed_at[crm] = max(progress.confirmed_at.timestamp(), confirmed_at[crm])
    held_ids = {crm for crm, live in presence.crms.read_by_id().items() if live.held_for > 0}
    busy = {
        progress.policy.crm_id
        for progress in waiting
        if counts[progress.policy.pk, _IN_FLIGHT] or (progress.due_at and progress.due_at <= now)
    } - held_ids
    seconds = _measure_stalls(confirmed_at, busy, now.timestamp())
    names = {progress.policy.crm_id: progress.policy.crm.name for progress in waiting}
    for crm, name in names.items():
        if seconds[crm] > STALLED_SECONDS:
            yield Condition.of(
                f"{STALLED}:{crm}",
                _("%(crm)s has confirmed nothing for %(minutes)d minutes"),
                _(
                    "Records wait for it. Look at its calls in the exception log, and check "
                    "that run_sync_handler is running."
                ),
                crm=name,
                minutes=round(STALLED_SECONDS / 60),
            )


def _measure_stalls(
    confirmed_at: Mapping[int, float], busy: Collection[int], now: float
) -> dict[int, float]:
    """The seconds for which each of these CRMs has been stalled. They are kept in Redis, because
    another process may look next, and begin anew with each record that is confirmed."""
    if content := work_redis().get(STALLS):
        last = msgspec.json.decode(content, type=_Stalls)
    else:  # After a loss of Redis: CRMs with an open alert are still stalled
        last = _Stalls(now, {}, [])
        for crm, at in confirmed_at.items():
            if open_conditions(Q(open_key=f"{STALLED}:{crm}")):
                last.crms[crm] = (at, STALLED_SECONDS + 1)
    gap = now - last.at
    seconds_passed = gap if 0 < gap <= _MAX_GAP_SECONDS else 0.0
    crms: dict[int, tuple[float, float]] = {}
    for crm, at in confirmed_at.items():
        last_confirmed, seconds = last.crms.get(crm, (at, 0.0))
        if last_confirmed != at:
            seconds = 0.0
        elif crm in busy and crm in last.busy:
            seconds += seconds_passed
        crms[crm] = (at, seconds)
    if crms:
        stalls = msgspec.json.encode(_Stalls(now, crms, sorted(busy)))
        write_into_full(work_redis(), "SET", STALLS, stalls, "EX", 86_400)
    else:  # no time remains where no record waits
        work_redis().delete(STALLS)
    return {crm: seconds for crm, (_at, seconds) in crms.items()}


def _source_trouble(
    working: Sequence[PolicyProgress], reports: Mapping[int, PolicyFacts]
) -> Iterator[Condition]:
    """Sources that cannot be read as they should be, by the reports of pollers. Without a poller's
    report a source's alert stays as it is."""
    unheld_ids: list[int] = []
    for policy in (progress.policy for progress in working):
        report = reports.get(policy.pk)
        if report is None:
            unheld_ids.append(policy.pk)
            continue
        if report.problem and report.problem_for > UNREADABLE_SECONDS:
            yield Condition.of(
                f"{SOURCE}:{policy.pk}",
                _("The source %(name)s cannot be read"),
                _(
                    "%(problem)s Nothing new reaches %(crm)s until it can. Correct the source "
                    "in the console, or repair its database; reading goes on by itself."
                ),
                name=str(policy.source),
                problem=report.problem,
                crm=str(policy.crm),
            )
        elif report.without_time:
            yield Condition.of(
                f"{SOURCE}:{policy.pk}",
                _("Rows of the source %(name)s have no time"),
                _(
                    "Rows without a time in %(column)s: %(count)d or more. They never reach "
                    "%(crm)s. Set it in the source's database, and let the database set it in "
                    "each row."
                ),
                name=str(policy.source),
                count=report.without_time,
                column=policy.source.time_column,
                crm=str(policy.crm),
            )
        # An assumed horizon is as old as the source's `lag` says.
        elif report.exact and report.horizon_age > HORIZON_SECONDS:
            yield Condition.of(
                f"{HORIZON}:{policy.pk}",
                _("A transaction at the source %(name)s is left open"),
                _(
                    "It has been open for %(minutes)d minutes. What is written meanwhile "
                    "reaches %(crm)s only after it ends: commit it, or end its session in the "
                    "source's database."
                ),
                name=str(policy.source),
                minutes=round(report.horizon_age / 60),
                crm=str(policy.crm),
            )
    keys = [f"{kind}:{pk}" for kind in (SOURCE, HORIZON) for pk in unheld_ids]
    yield from open_conditions(Q(open_key__in=keys))


def examine() -> Iterator[Finding]:
    """Examine triggers, CRMs and policies. May raise errors of the database and of Redis."""
    # Without triggers, as after a restore from a dump without them, changes of leads are not
    # noticed. Without the triggers' user leads are refused.
    if problem := lead_triggers.problem(connection):
        fix = migration_stages.migrate_command("default")
        yield Finding("bad", f"CRM sync: {problem}", fix)
    else:
        yield Finding("ok", "CRM sync: the triggers of the table lead are there")
    policies = list(Policy.with_names().order_by("id"))
    if not policies:
        yield Finding("ok", "CRM sync: there is no policy: leads are stored, and sent to no CRM")
        return
    for crm in Crm.objects.filter(enabled=True, paused_at__isnull=False).order_by("name"):
        yield Finding(
            "bad", f"CRM sync: {crm.name} is paused: {crm.paused_because}",
            "correct its settings in the console, and press Resume there",
        )  # fmt: skip
    reports = presence.policies.read_by_id()
    for policy in policies:
        if not (policy.enabled and policy.crm.enabled):
            continue
        name, report = f"CRM sync: {policy}", reports.get(policy.pk)
        if report is None:
            yield Finding("warn", f"{name} is held by no poller", f"{env.START}sync_poller")
        elif report.problem:
            yield Finding("bad", f"{name}: {report.problem}", "correct the source in the console")
        elif not report.exact:
            yield Finding(
                "warn", f"{name}: the source does not show its open transactions",
                "GRANT PROCESS ON *.* to the source's user, and name the server that is written "
                "to, no replica; until then no transaction may take longer than is set for the "
                "source",
            )  # fmt: skip
        elif report.without_time:
            yield Finding(
                "warn", f"{name}: rows without a time, never read: {report.without_time} or more",
                f"set {policy.source.time_column} in the source's database",
            )  # fmt: skip
        else:
            yield Finding("ok", name)


_POLICY = "admin:crmsync_policy_change"
_RECOVERY = "admin:crmsync_recoveryentry_changelist"
# Where to act on the alerts; `runbooks.md` beside this file says what to do.
RUNBOOKS: Mapping[str, Runbook] = {
    "crm.stalled": CRM.runbook(),
    "crm.paused": CRM.runbook(),
    "crm.unusable": CRM.runbook(),
    "crm.fault": Runbook(_RECOVERY),
    "crm.policy": Runbook(_POLICY, takes_subject=True),
    "crm.source": Runbook(_POLICY, takes_subject=True),
    "crm.horizon": Runbook(_POLICY, takes_subject=True),
    "crm.removals": Runbook(_POLICY, takes_subject=True),
    "crm.dead": Runbook(_RECOVERY),
    "crm.recovery": Runbook(_RECOVERY),
    "crmsync.failures": Runbook("console:failures"),
    "crmsync.retention": Runbook("console:overview"),
}
RUNBOOK_TEXTS = Path(__file__).with_name("runbooks.md")
