"""How subscriptions are doing: since when every attempt fails, and when that disables one.

The marker writes it in the transaction that marks, and nothing for a healthy subscription. Alerts
follow from what is stored (`reconcile_alerts`), not from the moment it happened: a process that
dies after its commit leaves no alert out, and an operator who resumes a subscription resolves its
alerts.

    healthy ──failure──▶ failing ──long enough, or 410──▶ disabled ──an operator──▶ healthy
       ▲                    │
       └──────success───────┘
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import F, Q, QuerySet, Value
from django.db.models.functions import Coalesce, Least
from django.utils import timezone
from django.utils.translation import gettext_noop

from msgplatform.core import alerts
from msgplatform.core.data import claims, sql
from msgplatform.core.lazy_text import dump, lazy_message, load
from msgplatform.models import AuditLog
from notify.models import BizReceive
from notify.monitor import outages
from notify.orders import Result
from notify.subscriptions import limits

GONE = 410
# One failure long ago and nothing since is not a subscription that fails all the time.
MIN_FAILURES = 5
# For an alert: the first wait of a schedule is short, so a second failure comes soon.
_MIN_FAILURES_OF_ALERT = 2
DISABLED, FAILING = "notify.disabled", "notify.failing"

_Status = BizReceive.Status
_ACTIVE = (_Status.NORMAL, _Status.SKIPPING)
_MAX_FAILURES = 2**31 - 1  # the largest number of the column
# What an alert names; secrets and headers are not read for that.
_SHOWN = (
    "status", "failing_since", "failures", "disabled_reason", "disabled_said",
    "biz__name", "biz__title", "receive__name", "receive__title",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """The columns of a subscription that the marker needs."""

    id: int
    biz_id: int
    status: int
    failing_since: datetime | None
    failures: int
    disabled_reason: str

    @property
    def is_clean(self) -> bool:
        return self.failing_since is None and not self.failures and not self.disabled_reason


@dataclass(frozen=True, slots=True)
class _Streak:
    """The failures that a batch ends with. `is_fresh`: a success came before them; `is_gone`: one
    of them was the answer 410."""

    failures: int
    is_fresh: bool
    is_gone: bool


def read(subscription_ids: Iterable[int]) -> dict[int, Row]:
    """Read the subscriptions that exist, by id; one query."""
    return _read(BizReceive.objects.filter(id__in=set(subscription_ids)))


def update(results: Iterable[Result], rows: Mapping[int, Row], now: datetime) -> bool:
    """Write down how the subscriptions of these applied results are doing.

    `rows` is the answer of `read` in this transaction. Returns True if alerts may have changed.
    """
    streaks = {pk: streak for pk, streak in _streaks(results).items() if pk in rows}
    changing = [pk for pk, s in streaks.items() if s.failures or not rows[pk].is_clean]
    if not changing:
        return False
    # Read again under lock, in id order: two markers neither deadlock nor lose a failure.
    locked_rows = BizReceive.objects.select_for_update().filter(id__in=changing).order_by("id")
    current = _read(locked_rows)
    recovered_rows = [row for pk, row in current.items() if not streaks[pk].failures]
    if recovered_rows:
        # The reason of a disabled subscription stays until a person resumes it.
        succeeding = BizReceive.objects.filter(id__in=[row.id for row in recovered_rows])
        claims.update_by_key(succeeding, {"failing_since": None, "failures": 0})
        if any(row.disabled_reason and row.status != _Status.DISABLED for row in recovered_rows):
            enabled_again = succeeding.exclude(status=_Status.DISABLED)
            claims.update_by_key(enabled_again, {"disabled_reason": "", "disabled_said": {}})
    failing = {pk: streaks[pk] for pk in current if streaks[pk].failures}
    groups: dict[tuple[int, bool], list[int]] = defaultdict(list)
    for pk, streak in failing.items():
        groups[streak.failures, streak.is_fresh].append(pk)
    for (failures, is_fresh), subscription_ids in groups.items():
        since = Value(now) if is_fresh else Coalesce("failing_since", Value(now))
        total = Value(failures) if is_fresh else Least(F("failures") + failures, _MAX_FAILURES)
        failing_rows = BizReceive.objects.filter(id__in=subscription_ids)
        claims.update_by_key(failing_rows, {"failing_since": since, "failures": total})
    disabled_count = sum(_disable(current[pk], streak, now) for pk, streak in failing.items())
    # A subscription that recovered matters only if an alert about it may be open.
    after = limits.failing_alert_after()
    long_ago = now - after if after else None
    return bool(disabled_count) or any(
        row.disabled_reason or (long_ago and row.failing_since and row.failing_since <= long_ago)
        for row in recovered_rows
    )


def _read(rows: QuerySet[BizReceive]) -> dict[int, Row]:
    values = rows.values_list(
        "id", "biz_id", "status", "failing_since", "failures", "disabled_reason"
    )
    return {row[0]: Row(*row) for row in values}


def _streaks(results: Iterable[Result]) -> dict[int, _Streak]:
    """The failures at the end of each subscription's attempts, in the order in which they ended."""
    by_subscription: dict[int, list[Result]] = defaultdict(list)
    for result in results:
        by_subscription[result.subscription].append(result)
    streaks = {}
    for subscription, outcomes in by_subscription.items():
        outcomes.sort(key=lambda result: result.at + result.seconds)
        last_failures: list[Result] = []
        while outcomes and outcomes[-1].outcome == "failed":
            last_failures.append(outcomes.pop())
        is_gone = any(result.http_status == GONE for result in last_failures)
        streaks[subscription] = _Streak(len(last_failures), bool(outcomes), is_gone)
    return streaks


def _disable(row: Row, streak: _Streak, now: datetime) -> int:
    """Disable it if its consumer says that it is gone, or has failed for too long; returns 1 if
    it was disabled, else 0."""
    if row.status not in _ACTIVE:
        return 0
    since = now if streak.is_fresh else row.failing_since or now
    failures = streak.failures + (0 if streak.is_fresh else row.failures)
    limit = _limit()
    is_over = limit is not None and since <= now - limit and failures >= MIN_FAILURES
    if streak.is_gone:
        reason = lazy_message(
            gettext_noop("the consumer answered 410 Gone, and wants no more messages")
        )
    elif is_over:
        text = gettext_noop("every attempt since %(since)s failed, %(failures)d in a row")
        reason = lazy_message(text, since=_moment(since), failures=failures)
    else:
        return 0
    rows = BizReceive.objects.filter(id=row.id)
    rows.update(status=_Status.DISABLED, disabled_reason=reason[:200], disabled_said=dump(reason))
    AuditLog.objects.create(
        actor="platform",
        action="subscription_disabled",
        target=f"{rows.select_related('biz', 'receive').get()} #{row.id}"[:200],
        detail={"reason": reason, "failures": failures, "before": _Status(row.status).name},
    )
    return 1


def _limit() -> timedelta | None:
    hours = settings.NOTIFY_DISABLE_AFTER_HOURS
    return timedelta(hours=hours) if hours else None


# -- alerts --------------------------------------------------------------------------------------
def reconcile_alerts() -> None:
    """Raise and resolve alerts so that they say what is stored; not inside a transaction."""
    now = sql.now()
    alerts.reconcile((DISABLED, FAILING), _conditions(now))


def _conditions(now: datetime) -> Iterable[alerts.Condition]:
    """An alert for every subscription that somebody must look at."""
    wanted = Q(status=_Status.DISABLED)
    if after := limits.failing_alert_after():
        long = {"failing_since__lte": now - after, "failures__gte": _MIN_FAILURES_OF_ALERT}
        wanted |= Q(status__in=_ACTIVE, **long)
    failing = BizReceive.objects.filter(wanted).select_related("biz", "receive").order_by("id")
    rows = list(failing.only(*_SHOWN))
    texts = outages.describe([row for row in rows if row.status != _Status.DISABLED], now)
    for row in rows:
        if row.status == _Status.DISABLED:
            yield alerts.Condition(
                f"{DISABLED}:{row.pk}",
                lazy_message(gettext_noop("The subscription %(name)s was disabled"), name=str(row)),
                lazy_message(
                    gettext_noop(
                        "The reason: %(why)s. Its deliveries wait; resume it in the console to "
                        "send them."
                    ),
                    why=load(row.disabled_said or row.disabled_reason)
                    or lazy_message(gettext_noop("no reason is known")),
                ),
            )
        elif row.failing_since:
            text = texts.get(row.pk) or lazy_message(
                gettext_noop("Every attempt since %(since)s failed, %(failures)d in a row."),
                since=_moment(row.failing_since),
                failures=row.failures,
            )
            if limit := _limit():
                text = lazy_message(
                    gettext_noop("%(text)s If that goes on, it will be disabled on %(end)s."),
                    text=text,
                    end=_moment(row.failing_since + limit),
                )
            subject = lazy_message(
                gettext_noop("The subscription %(name)s is failing"), name=str(row)
            )
            yield alerts.Condition(f"{FAILING}:{row.pk}", subject, text)


def _moment(at: datetime) -> str:
    return timezone.localtime(at).strftime("%Y-%m-%d %H:%M %Z")
