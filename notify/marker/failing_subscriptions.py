"""The health of subscriptions: since when every attempt fails, and the disabling after a time.

The marker writes the health in the transaction that marks; a healthy subscription is not written.
Alerts follow from the stored rows (`monitor/conditions.py`).

    healthy ──failure──▶ failing ──long enough, or 410──▶ disabled ──an operator──▶ healthy
       ▲                    │
       └──────success───────┘
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import msgspec
from django.conf import settings
from django.db.models import F, QuerySet, Value
from django.db.models.functions import Coalesce, Least
from django.utils.translation import gettext_noop

from msgplatform.core.alerts import moment
from msgplatform.core.data import claims
from msgplatform.core.lazy_text import dump, lazy_message
from msgplatform.models import AuditLog
from notify.models import BizReceive
from notify.orders import Result

GONE = 410
# A minimum, because one failure long ago does not show that a subscription fails all the time.
MIN_FAILURES = 5
_Status = BizReceive.Status
_MAX_FAILURES = 2**31 - 1  # the largest number of the column


class Row(msgspec.Struct, frozen=True):
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


class _Streak(msgspec.Struct, frozen=True):
    """The number of failures at the end of a batch. `is_fresh`: a success came before these
    failures. `is_gone`: one of these failures was the answer 410."""

    failures: int
    is_fresh: bool
    is_gone: bool


def read(subscription_ids: Iterable[int]) -> dict[int, Row]:
    """Read the existing subscriptions of these ids, by id, with one query."""
    return _read(BizReceive.objects.filter(id__in=set(subscription_ids)))


def update(results: Iterable[Result], rows: Mapping[int, Row], now: datetime) -> None:
    """Store the health of the subscriptions of these applied results. `rows`: the rows that `read`
    returned in this transaction."""
    streaks = {pk: streak for pk, streak in _streaks(results).items() if pk in rows}
    changing = [pk for pk, s in streaks.items() if s.failures or not rows[pk].is_clean]
    if not changing:
        return
    # Read again under lock, in id order, so that two markers neither deadlock nor lose a failure.
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
    for pk, streak in failing.items():
        _disable(current[pk], streak, now)


def _read(rows: QuerySet[BizReceive]) -> dict[int, Row]:
    values = rows.values_list(
        "id", "biz_id", "status", "failing_since", "failures", "disabled_reason"
    )
    return {row[0]: Row(*row) for row in values}


def _streaks(results: Iterable[Result]) -> dict[int, _Streak]:
    """Subscription → the failures at the end of its attempts. Attempts are sorted by their end."""
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


def _disable(row: Row, streak: _Streak, now: datetime) -> None:
    """Disable the subscription if its consumer answered 410, or has failed for too long."""
    if row.status not in BizReceive.ACTIVE:
        return
    since = now if streak.is_fresh else row.failing_since or now
    failures = streak.failures + (0 if streak.is_fresh else row.failures)
    limit = timedelta(hours=settings.NOTIFY_DISABLE_AFTER_HOURS)
    is_over = bool(limit) and since <= now - limit and failures >= MIN_FAILURES
    if streak.is_gone:
        reason = lazy_message("the consumer answered 410 Gone, and wants no more messages")
    elif is_over:
        text = gettext_noop("every attempt since %(since)s failed, %(failures)d in a row")
        reason = lazy_message(text, since=moment(since), failures=failures)
    else:
        return
    rows = BizReceive.objects.filter(id=row.id)
    rows.update(status=_Status.DISABLED, disabled_reason=reason[:200], disabled_said=dump(reason))
    AuditLog.record(
        "platform", "subscription_disabled",
        f"{rows.select_related('biz', 'receive').get()} #{row.id}",
        reason=reason, failures=failures, before=_Status(row.status).name,
    )  # fmt: skip
