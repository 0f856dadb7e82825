"""The present state of CRMs, read for all rows of a page with a fixed number of queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from crmsync import presence
from crmsync.models import Crm, RecoveryEntry
from crmsync.orders import MainQueue, RetryQueue
from msgplatform.admin import cells
from msgplatform.core.connections import RedisError
from msgplatform.core.data.counting import capped
from msgplatform.core.durations import age
from msgplatform.core.queues import jobs

# Counted no further: a CRM may have a million dead records.
COUNTED = 10_000


@dataclass(frozen=True)
class Health:
    """The state of one CRM now. `waiting` and `retries` are work orders in its queues, None while
    Redis is unavailable; `live` is None when no handler reports the CRM."""

    live: presence.LiveCrm | None
    waiting: int | None
    retries: int | None
    dead: int


def read(rows: Sequence[Crm]) -> dict[int, Health]:
    """By CRM id: two queries to Redis and one to the database for any number of rows."""
    keys = [(row.pk, int(RecoveryEntry.State.OPEN)) for row in rows]
    counts = capped("recovery_log", "crm_id = %s AND state = %s", keys, COUNTED)
    dead = dict(zip([row.pk for row in rows], counts, strict=True))
    names = {row.pk: (MainQueue(row.name).name, RetryQueue(row.name).name) for row in rows}
    try:
        depths = jobs.depths([name for pair in names.values() for name in pair])
        states = presence.read_crms()
    except RedisError:
        return {row.pk: Health(None, None, None, dead[row.pk]) for row in rows}
    return {
        pk: Health(states.get(pk), depths[main], depths[retry_queue], dead[pk])
        for pk, (main, retry_queue) in names.items()
    }


# -- as cells ------------------------------------------------------------------------------------
def state(row: Crm, health: Health) -> SafeString:
    """The state of the CRM, with the reason why it does nothing."""
    if row.paused_at:
        since = _("since %s") % cells.moment(row.paused_at)
        return cells.mark(_("paused"), "bad", below=f"{since}: {row.paused_because}")
    if not row.enabled:
        return cells.enabled(False)
    if health.waiting is None:
        return cells.unknown()
    live = health.live
    if live is None:
        return cells.mark(_("not served"), "warn", below=_("no handler reports it"))
    if live.is_open:
        below = _("next try in %s") % age(live.retry_in)
        return cells.mark(_("breaker open"), "bad", below=below)
    if live.held_for > 0:
        below = _("it wants fewer calls; next in %s") % age(live.held_for)
        return cells.mark(_("held back"), "warn", below=below)
    return cells.mark(_("working"), "good")


def latency(health: Health) -> str:
    live = health.live
    return f"{live.latency * 1000:.0f} ms" if live and live.latency else cells.NOTHING


def speed(health: Health) -> str:
    live = health.live
    return _("%.0f/s") % live.per_second if live and live.per_second else cells.NOTHING


def queues(health: Health) -> str:
    """Orders that wait, and below the retries among them."""
    if health.waiting is None or health.retries is None:
        return cells.unknown()
    if not (health.waiting or health.retries):
        return cells.nothing("0")
    text = str(health.waiting)
    return cells.lines(text, _("%d to be tried again") % health.retries) if health.retries else text
