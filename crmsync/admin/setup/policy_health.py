"""The present state of policies, read for all rows of a page with a fixed number of queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Max
from django.utils import timezone
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from crmsync import presence
from crmsync.models import Policy, Run, Watermark
from crmsync.monitor import progress
from msgplatform.admin import cells
from msgplatform.core.connections import RedisError
from msgplatform.core.durations import age


@dataclass(frozen=True)
class Health:
    """The state of one policy now. `facts` is None when no poller reports the policy; `is_known`
    is False while Redis is unavailable. `run` is the newest run."""

    facts: presence.PolicyFacts | None
    is_known: bool
    watermark: Watermark | None
    run: Run | None
    progress: progress.Progress | None


def read(rows: Sequence[Policy]) -> dict[int, Health]:
    """By policy id: one query to Redis and five to the database for any number of rows."""
    ids = [row.pk for row in rows]
    # By the index on (policy, id): no run but the newest of each is read.
    newest = Run.objects.filter(policy_id__in=ids).order_by().values("policy_id")
    runs = Run.objects.in_bulk([each["last"] for each in newest.annotate(last=Max("id"))])
    by_policy = {run.policy_id: run for run in runs.values()}
    how_far = progress.of_runs(runs.values())
    watermarks = Watermark.objects.in_bulk(ids)
    try:
        facts, is_known = presence.read_policies(), True
    except RedisError:
        facts, is_known = {}, False
    return {
        pk: Health(
            facts.get(pk), is_known, watermarks.get(pk), by_policy.get(pk),
            how_far.get(by_policy[pk].pk) if pk in by_policy else None,
        )
        for pk in ids
    }  # fmt: skip


def state(row: Policy, health: Health) -> SafeString:
    """The state of the policy, with the reason why it does nothing."""
    if not row.enabled:
        return cells.enabled(False)
    if not row.crm.enabled:
        return cells.mark(_("waits"), "plain", below=_("its CRM is switched off"))
    if row.crm.paused_at:
        return cells.mark(_("waits"), "bad", below=_("its CRM is paused"))
    if row.requested:
        kind = Policy.Kind(row.requested).label
        return cells.mark(_("asked for"), "warn", below=str(kind))
    if not health.is_known:
        return cells.unknown()
    if health.facts is None:
        return cells.mark(_("not served"), "warn", below=_("no poller reports it"))
    if health.facts.problem:
        return cells.mark(_("cannot be read"), "bad", below=problem(health.facts))
    return cells.mark(_("working"), "good")


def problem(facts: presence.PolicyFacts) -> str:
    """The reason why the source cannot be read, and for how long it has not been."""
    return _("%(why)s (for %(time)s)") % {
        "why": facts.problem,
        "time": age(facts.problem_for),
    }


def watermark(health: Health) -> str:
    """The place up to which the source was read, and when that moved last."""
    mark = health.watermark
    if mark is None:
        return cells.NOTHING
    time_since_move = age(max(0.0, (timezone.now() - mark.moved_at).total_seconds()))
    return cells.lines(mark.update_time[:19], _("moved %s ago") % time_since_move)


def schedule(row: Policy) -> str:
    """The interval of looks for changes; below the hours, and the zone of times."""
    often = row.cron or _("every %s") % age(row.interval_seconds).replace(".0", "")
    zone = timezone.get_default_timezone_name() if row.cron or row.hours else ""
    return cells.lines(often, f"{row.hours} {zone}".strip())
