"""The watch over flows: work that waits, failures, the conditions of each flow.

For the overview's curves the watch notes minute by minute how many messages wait; the last look of
a minute counts. Only the work Redis keeps these numbers: losing Redis loses a curve.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import timedelta

from django.conf import settings
from django.utils import timezone
from django.utils.translation import gettext_noop as _

from msgplatform.core import alerts, flows
from msgplatform.core.alerts import Condition, moment
from msgplatform.core.connections import work_redis
from msgplatform.core.flows.health import MAX_FAILURES, Failure
from msgplatform.monitor.failure_groups import lazy_answers
from msgplatform.monitor.watch import BACKLOG, FAILURES, PLATFORM, key
from msgplatform.monitor.watch.unread import Errors, noting

KEPT_MINUTES = 1440  # of the curves of backlogs
_EXPIRE_SECONDS = 2 * KEPT_MINUTES * 60


def report_backlogs() -> Errors:
    """An alert for each queue in which something has been due for too long."""
    errors: Errors = {}
    minutes = settings.ALERT_BACKLOG_MINUTES
    for flow in flows.all():
        with noting(errors, kinds := [key(BACKLOG, flow.name)]):
            conditions = [
                Condition.of(
                    f"{key(BACKLOG, flow.name)}:{wait.which}",
                    _("%(flow)s: %(what)s has waited for more than %(minutes)s minutes"),
                    _(
                        "It has waited since %(since)s. See in the console whether the programs "
                        "run and keep up; start more of them if all are busy."
                    ),
                    flow=flow.title,
                    what=wait.what,
                    minutes=f"{minutes:g}",
                    since=moment(wait.since),
                )
                for wait in (flow.health.oldest_waits() if minutes else ())
                if timezone.now() - wait.since > timedelta(minutes=minutes)
            ]
            alerts.reconcile(kinds, conditions)
    return errors


def note_backlogs() -> None:
    """Note the backlogs for the overview's curves. A flow whose servers do not answer has a gap."""
    with noting({}, ["backlogs"]):
        statuses = {flow.name: flow.health.status() for flow in flows.all()}
        store_backlogs(
            {name: status.backlog for name, status in statuses.items() if not status.problem}
        )


def store_backlogs(backlogs: Mapping[str, int], now: float | None = None) -> None:
    """Store flow → messages that wait now. Raises RedisError."""
    minute = int((time.time() if now is None else now) // 60)
    pipeline = work_redis().pipeline(transaction=False)
    for flow, backlog in backlogs.items():
        redis_key = _backlogs_key(flow)
        pipeline.hset(redis_key, str(minute), str(backlog))
        # Delete old fields. After a gap in the curve some remain until the key expires.
        pipeline.hdel(redis_key, *(str(minute - KEPT_MINUTES - n) for n in range(5)))
        pipeline.expire(redis_key, _EXPIRE_SECONDS)
    pipeline.execute()


def read_backlogs(flow_names: Iterable[str]) -> dict[str, dict[float, int]]:
    """Flow → unix seconds of a minute's start → messages that waited. Raises RedisError."""
    names = list(flow_names)
    pipeline = work_redis().pipeline(transaction=False)
    for name in names:
        pipeline.hgetall(_backlogs_key(name))
    return {
        name: {
            int(minute) * 60.0: int(value)
            for minute, value in rows.items()
            if minute.isdigit() and value.isdigit()  # other programs may write into this Redis
        }
        for name, rows in zip(names, pipeline.execute(), strict=True)
    }


def _backlogs_key(flow: str) -> str:
    return f"platform:backlog:{flow}"


def report_failures() -> Errors:
    """An alert for each place with failures, until these are resent or acknowledged."""
    errors: Errors = {}
    for flow in flows.all():
        if flow.health.failures_alert:
            continue
        with noting(errors, kinds := [f"{flow.name}.{FAILURES}"]):
            failures = flow.health.failures()
            # A full list may lack a place that has an open alert.
            is_full = len(failures) >= MAX_FAILURES
            places: dict[int, list[Failure]] = defaultdict(list)
            for failure in failures:
                if not failure.is_quiet:
                    places[failure.subject].append(failure)
            conditions = [
                Condition.of(
                    f"{flow.name}.{FAILURES}:{subject}",
                    _("%(flow)s: messages were given up: %(where)s"),
                    _(
                        "Messages: %(count)d, since %(since)s: %(answers)s. They are not sent "
                        "again by themselves: send them again or acknowledge them on Failures."
                    ),
                    flow=flow.title,
                    where=group[0].where,
                    count=sum(failure.count for failure in group),
                    since=moment(min(failure.since for failure in group)),
                    answers=lazy_answers(group[:5]),
                )
                for subject, group in places.items()
            ]
            alerts.reconcile(kinds, conditions, lambda _key: is_full)  # noqa: B023 - called at once
    return errors


def failure_kinds() -> set[str]:
    """The kinds of the alerts about failures, which the console counts as groups."""
    return {flow.health.failures_alert or f"{flow.name}.{FAILURES}" for flow in flows.all()}


def report_conditions() -> Errors:
    """Reconcile the alerts that flows leave to the watch with the conditions that hold now."""
    errors: Errors = {}
    for flow in flows.all():
        if flow.health.condition_kinds:
            with noting(errors, flow.health.condition_kinds):
                # An iterator, not a list: conditions must be read after the open alerts, or an
                # alert that a program raises between the two would be resolved.
                alerts.reconcile(flow.health.condition_kinds, flow.health.conditions())
    return errors


def resolve_undeclared() -> None:
    """Resolve open alerts of kinds that no runbook declares, and about backlogs of flows that are
    not in FLOWS. An earlier release, or one with other FLOWS, raised these alerts, and no program
    looks at their conditions any more."""
    declared_kinds = PLATFORM.union(*(flow.health.runbooks for flow in flows.all()))
    open_kinds = alerts.open_kinds()
    undeclared_kinds = {kind for kind in open_kinds if kind.partition(":")[0] not in declared_kinds}
    if undeclared_kinds:
        alerts.reconcile(undeclared_kinds, ())
    if BACKLOG in open_kinds:
        alerts.reconcile([BACKLOG], (), lambda text: flows.get(text.split(":")[1]) is not None)
