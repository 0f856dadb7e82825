"""The alerts that stay open as long as a condition holds; each poller checks them every few
seconds.

crm.source      a source could not be read for a minute
crm.horizon     a transaction at a source is open for ten minutes, and holds up the reading
crm.stalled     a CRM has confirmed nothing for ten minutes in which records were due for it
crm.dead        more than 5 % of a policy's records ended dead in the last hour, of at least 20
crm.recovery    entries of the recovery log are open for more than a day
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from django.utils.translation import gettext_noop as _

from crmsync import presence
from crmsync.models import Record
from crmsync.monitor import backlog, counters
from crmsync.monitor.backlog import PolicyProgress
from crmsync.presence import PolicyFacts
from msgplatform.core import alerts
from msgplatform.core.alerts import Condition
from msgplatform.core.connections import RedisError
from msgplatform.core.data import sql
from msgplatform.core.lazy_text import lazy_message

SOURCE, HORIZON, STALLED = "crm.source", "crm.horizon", "crm.stalled"
DEAD, RECOVERY = "crm.dead", "crm.recovery"

UNREADABLE_SECONDS = 60.0
HORIZON_SECONDS = 600.0
STALLED_SECONDS = 600.0
DEAD_SHARE, DEAD_OF = 0.05, 20  # in the last hour, of at least so many records
OPEN_FOR = timedelta(days=1)
_COUNTED = 1_000
_IN_FLIGHT = int(Record.State.QUEUED)
_HOUR = timedelta(hours=1)


class AlertConditions:
    """The conditions as one process sees them: it remembers since when nothing was confirmed.
    Several processes may check them."""

    def __init__(self) -> None:
        # CRM → the minute of its last confirmed record, and for how many seconds checks of this
        # process have found records due or in flight since, and that minute unchanged.
        self._stalls: dict[int, tuple[datetime | None, float]] = {}
        self._busy: set[int] = set()  # CRMs with such records at the last check
        self._looked_at = 0.0  # monotonic

    def reconcile(self) -> None:
        """Raise what holds, resolve what is over. Raises OperationalError."""
        now = sql.now()
        policies = backlog.of_policies(now)
        working = [one for one in policies if one.takes_work]
        stalled = self._stalled(working, now)
        recently = now - timedelta(seconds=STALLED_SECONDS)
        # Another process may have found these stalled before this one began to look.
        undecided = {
            f"{STALLED}:{crm}"
            for crm, (at, _seconds) in self._stalls.items()
            if at is None or at < recently
        }
        alerts.reconcile([STALLED], stalled, undecided)
        alerts.reconcile([DEAD], _dead(policies, now))
        alerts.reconcile([RECOVERY], _left_open(now))
        try:
            facts = presence.read_policies()
        except RedisError:
            return  # nobody knows how sources are: their alerts stay as they are
        unheld = [one.policy.pk for one in working if one.policy.pk not in facts]
        undecided = {f"{kind}:{policy}" for kind in (SOURCE, HORIZON) for policy in unheld}
        alerts.reconcile([SOURCE, HORIZON], _of_sources(working, facts), undecided)

    def _stalled(self, working: Sequence[PolicyProgress], now: datetime) -> list[Condition]:
        """CRMs that confirm nothing, though records are due for them or in flight. Time in which
        nothing is due, or a CRM wants fewer calls, does not count."""
        counted = backlog.counts([one.policy.pk for one in working], Record.OPEN, most=1)
        waiting = [one for one in working if any(counted[one.policy.pk, s] for s in Record.OPEN)]
        confirmed: dict[int, datetime | None] = {one.policy.crm_id: None for one in waiting}
        for one in working:
            crm, at = one.policy.crm_id, one.confirmed_at
            if crm in confirmed and at is not None:
                confirmed[crm] = max(at, confirmed[crm] or at)
        busy = {
            one.policy.crm_id
            for one in waiting
            if counted[one.policy.pk, _IN_FLIGHT] or (one.due_at and one.due_at <= now)
        }
        busy -= _held()
        passed = time.monotonic() - self._looked_at
        passes = dict.fromkeys(busy & self._busy, passed)
        self._stalls = {
            crm: (at, self._stalled_for(crm, at) + passes.get(crm, 0.0))
            for crm, at in confirmed.items()
        }
        self._busy, self._looked_at = busy, time.monotonic()
        names = {one.policy.crm_id: one.policy.crm.name for one in working}
        return [
            Condition(
                f"{STALLED}:{crm}",
                lazy_message(
                    _("%(crm)s has confirmed nothing for %(minutes)d minutes"),
                    crm=names[crm],
                    minutes=round(STALLED_SECONDS / 60),
                ),
                lazy_message(
                    _(
                        "Records wait for it. Look at its calls in the exception log, and check "
                        "that run_sync_handler is running."
                    )
                ),
            )
            for crm, (_at, seconds) in self._stalls.items()
            if seconds > STALLED_SECONDS
        ]

    def _stalled_for(self, crm: int, confirmed_at: datetime | None) -> float:
        """Seconds so far; they begin anew with each record that is confirmed."""
        before, seconds = self._stalls.get(crm, (confirmed_at, 0.0))
        return seconds if before == confirmed_at else 0.0


def _held() -> set[int]:
    """CRMs that want fewer calls for a while, or whose limit is used up."""
    try:
        return {crm for crm, live in presence.read_crms().items() if live.held_for > 0}
    except RedisError:
        return set()


def _of_sources(
    working: Sequence[PolicyProgress], facts: Mapping[int, PolicyFacts]
) -> Iterator[Condition]:
    for one in working:
        policy, known = one.policy, facts.get(one.policy.pk)
        if known is None:
            continue
        if known.problem and known.problem_for > UNREADABLE_SECONDS:
            yield Condition(
                f"{SOURCE}:{policy.pk}",
                lazy_message(_("The source %(name)s cannot be read"), name=str(policy.source)),
                lazy_message(
                    _(
                        "%(problem)s Nothing new reaches %(crm)s until it can. Correct the source "
                        "in the console, or repair its database; reading goes on by itself."
                    ),
                    problem=known.problem,
                    crm=str(policy.crm),
                ),
            )
        elif known.without_time:
            yield Condition(
                f"{SOURCE}:{policy.pk}",
                lazy_message(
                    _("Rows of the source %(name)s have no time"), name=str(policy.source)
                ),
                lazy_message(
                    _(
                        "%(count)d rows or more have no time in %(column)s, so that they never "
                        "reach %(crm)s. Set it in the source's database, and let the database "
                        "set it in each row."
                    ),
                    count=known.without_time,
                    column=policy.source.time_column,
                    crm=str(policy.crm),
                ),
            )
        # Where the horizon is only assumed, its age is what was set for the source.
        elif known.exact and known.horizon_age > HORIZON_SECONDS:
            yield Condition(
                f"{HORIZON}:{policy.pk}",
                lazy_message(
                    _("A transaction at the source %(name)s is left open"), name=str(policy.source)
                ),
                lazy_message(
                    _(
                        "It has been open for %(minutes)d minutes. What is written meanwhile "
                        "reaches %(crm)s only after it ends: commit it, or end its session in the "
                        "source's database."
                    ),
                    minutes=round(known.horizon_age / 60),
                    crm=str(policy.crm),
                ),
            )


def _dead(policies: Sequence[PolicyProgress], now: datetime) -> Iterator[Condition]:
    hour = counters.since(now - _HOUR)
    for one in policies:
        policy = one.policy
        dead, confirmed = (hour[policy.pk, name] for name in (counters.DEAD, counters.CONFIRMED))
        if dead + confirmed >= DEAD_OF and dead > DEAD_SHARE * (dead + confirmed):
            yield Condition(
                f"{DEAD}:{policy.pk}",
                lazy_message(
                    _("%(policy)s: %(dead)d of %(ended)d records are dead"),
                    policy=str(policy),
                    dead=dead,
                    ended=dead + confirmed,
                ),
                lazy_message(
                    _(
                        "That was in the last hour. See in the recovery log what they were refused "
                        "for. Correct the data and try them again there, or correct the mapping "
                        "and start a run of everything: a try sends what the old mapping made."
                    )
                ),
            )


def _left_open(now: datetime) -> Iterator[Condition]:
    count = backlog.open_entries(now - OPEN_FOR, _COUNTED)
    if count:
        more = lazy_message(_("%(count)d or more"), count=count)
        yield Condition(
            f"{RECOVERY}:old",
            lazy_message(
                _("Entries of the recovery log open for more than a day: %(count)s"),
                count=more if count == _COUNTED else str(count),
            ),
            lazy_message(
                _(
                    "Nobody sends these records unless somebody decides: try them again, correct "
                    "them or dismiss them in the console."
                )
            ),
        )
