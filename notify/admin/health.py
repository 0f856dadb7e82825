"""How subscriptions are doing: read for all rows of a page in a fixed number of queries."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Case, IntegerField, Q, QuerySet, Sum, Value, When
from django.utils import timezone
from django.utils.translation import gettext as _

from msgplatform.core.connections import RedisError
from msgplatform.core.data.counting import capped
from msgplatform.models import MinuteCounter
from notify import due, lane_status
from notify.models import BizReceive, ReceiveMsg
from notify.monitor.metrics import OPEN

_Status = BizReceive.Status
# Counted no further: a subscription may have a million waiting deliveries.
COUNTED = 10_000


@dataclass(frozen=True)
class Health:
    """One subscription now. `waiting` counts deliveries that are neither delivered nor given up,
    up to COUNTED. `live` says nothing without `is_known`, while Redis is unavailable.

    `due_seconds` is how long its oldest due delivery has waited, None when none is due. `rate` is
    the share of attempts of the last hour that were accepted, None without any.
    """

    waiting: int
    due_seconds: float | None
    live: lane_status.Live | None
    is_known: bool
    delivered: int
    failed: int

    @property
    def rate(self) -> float | None:
        tried = self.delivered + self.failed
        return self.delivered / tried if tried else None

    @property
    def probe_at(self) -> datetime | None:
        """When the next probe may go, while the breaker is not closed."""
        if self.live is None or not self.live.is_open:
            return None
        return timezone.localtime() + timedelta(seconds=self.live.retry_in)


def read(rows: Sequence[BizReceive]) -> dict[int, Health]:
    """By subscription id: a call of Redis and three queries, however many rows."""
    ids = [row.pk for row in rows]
    # The oldest due time of each: an index dive for each of the page's rows.
    oldest = BizReceive.objects.filter(id__in=ids).order_by()
    pending = oldest.values_list("id", due.first(ReceiveMsg.Status.PENDING))
    now = timezone.now()
    due_since = {pk: at for pk, at in pending if at is not None and at <= now}
    # How many deliveries of each wait: the part of an index for each, read up to COUNTED.
    statuses = ", ".join(str(int(status)) for status in OPEN)
    condition = f"status IN ({statuses}) AND biz_receive_id = %s"
    found = capped("receive_msg", condition, [[pk] for pk in ids], COUNTED)
    waiting = dict(zip(ids, found, strict=True))
    counted, states = _last_hour(ids), _from_redis()
    return {
        pk: Health(
            waiting=waiting.get(pk, 0),
            due_seconds=(now - due_since[pk]).total_seconds() if pk in due_since else None,
            live=states.get(pk) if states else None,
            is_known=states is not None,
            delivered=counted.get((pk, "delivered"), 0),
            failed=counted.get((pk, "failed"), 0),
        )
        for pk in ids
    }


def _from_redis() -> dict[int, lane_status.Live] | None:
    """What senders report; None when Redis is unavailable."""
    try:
        return lane_status.read()
    except RedisError:
        return None


def _last_hour(ids: Collection[int]) -> dict[tuple[int, str], int]:
    rows = (
        MinuteCounter.objects.filter(
            minute__gte=timezone.now() - timedelta(hours=1),
            flow="notify",
            subject__in=ids,
            name__in=["delivered", "failed"],
        )
        .values_list("subject", "name")
        .annotate(Sum("value"))
        .order_by()
    )
    return {(subject, name): int(total) for subject, name, total in rows}


# -- who needs attention -------------------------------------------------------------------------
def open_breakers() -> list[int]:
    """Subscriptions whose breaker is not closed; none when Redis is unavailable."""
    return [pk for pk, state in (_from_redis() or {}).items() if state.is_open]


def troubled(open_ids: Collection[int]) -> Q:
    """Failing, disabled by the platform, or its breaker is open."""
    return Q(failing_since__isnull=False) | Q(status=_Status.DISABLED) | Q(pk__in=open_ids)


def troubled_first(rows: QuerySet[BizReceive], open_ids: Collection[int]) -> QuerySet[BizReceive]:
    """With the number `calm`: 0 for subscriptions that need attention, 1 for the others."""
    first = Case(
        When(troubled(open_ids), then=Value(0)), default=Value(1), output_field=IntegerField()
    )
    return rows.annotate(calm=first)


def disabled_on(row: BizReceive) -> datetime | None:
    """When the platform will disable it if nothing gets through; None when it will not."""
    hours = settings.NOTIFY_DISABLE_AFTER_HOURS
    if row.failing_since is None or not hours or row.status == _Status.DISABLED:
        return None
    return row.failing_since + timedelta(hours=hours)


def why(row: BizReceive) -> str:
    """A sentence when something is wrong with it, otherwise ''."""
    if row.status == _Status.DISABLED:
        return row.why_disabled or _("disabled by the platform")
    return ""
