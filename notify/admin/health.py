"""The health of subscriptions: read for all rows of a page in a fixed number of queries."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from django.conf import settings
from django.db.models import Q, Sum
from django.db.models.functions import Now
from django.utils import timezone

from msgplatform.core.data.counting import count_up_to
from msgplatform.models import FailureGroup, MinuteCounter
from msgplatform.monitor import failure_groups
from notify import presence
from notify.models import BizReceive, ReceiveMsg, first_due
from notify.monitor.counters import FLOW
from notify.monitor.metrics import waiting_seconds

_Status = BizReceive.Status
# The bound of counting: a subscription may have a million waiting deliveries.
MAX_COUNTED = 10_000
# A subscription counts as busy after this time. A burst is over sooner.
MIN_BUSY_SECONDS = 20.0
# A subscription is failing after this number of failures in a row, or this time; before, retrying.
MIN_FAILURES, MIN_FAILING = 3, timedelta(seconds=60)


class Busy(msgspec.Struct, frozen=True):
    """All slots are taken since `since`. `per_minute`: answers. `left_seconds`: seconds until all
    waiting deliveries are done, None without an answer to estimate by."""

    in_flight: int
    since: datetime
    per_minute: float
    left_seconds: float | None


class Health(msgspec.Struct, frozen=True):
    """The health of one subscription. `waiting` counts deliveries without a final status, up to
    MAX_COUNTED. `is_known` is False while Redis is unavailable; `lane` then has no meaning.

    `due_seconds` is the time that the oldest due delivery has waited, queued or not, None when no
    delivery is due. `rate` is the share of attempts of the last hour that were accepted, None
    without attempts. `failures` are deliveries that were neither resent nor acknowledged.
    """

    waiting: int
    due_seconds: float | None
    lane: presence.LaneState | None
    is_known: bool
    delivered: int
    failed: int
    failures: int = 0

    @property
    def busy(self) -> Busy | None:
        """The busy state; None unless slots were full and a delivery waited MIN_BUSY_SECONDS."""
        lane = self.lane
        if lane is None or lane.is_open:
            return None
        seconds = min(lane.busy_for, self.due_seconds or 0.0)
        if seconds < MIN_BUSY_SECONDS:
            return None
        rate = lane.busy_per_second
        left_seconds = self.waiting / rate if rate and self.waiting < MAX_COUNTED else None
        since = timezone.localtime() - timedelta(seconds=seconds)
        return Busy(lane.in_flight, since, 60 * rate, left_seconds)

    @property
    def rate(self) -> float | None:
        attempts = self.delivered + self.failed
        return self.delivered / attempts if attempts else None

    @property
    def probe_at(self) -> datetime | None:
        """The time of the next probe, while the breaker is not closed."""
        if self.lane is None or not self.lane.is_open:
            return None
        return timezone.localtime() + timedelta(seconds=self.lane.retry_in)


def read(rows: Sequence[BizReceive]) -> dict[int, Health]:
    """The health by subscription id. Costs one call of Redis and four queries for all rows."""
    ids = [row.pk for row in rows]
    # The oldest due times of each subscription: one index dive for each status.
    subscriptions = BizReceive.objects.filter(id__in=ids).order_by()
    due_times = list(subscriptions.values_list("id", Now(), *map(first_due, ReceiveMsg.WAITING)))
    # The waiting deliveries of each subscription: a range of an index, read up to MAX_COUNTED.
    statuses = ", ".join(str(int(status)) for status in ReceiveMsg.OPEN)
    condition = f"status IN ({statuses}) AND biz_receive_id = %s"
    counts = count_up_to("receive_msg", condition, [[pk] for pk in ids], MAX_COUNTED)
    waiting = dict(zip(ids, counts, strict=True))
    last_hour = MinuteCounter.objects.filter(
        minute__gte=timezone.now() - timedelta(hours=1), flow=FLOW, subject__in=ids,
        name__in=["delivered", "failed"],
    )  # fmt: skip
    counters = last_hour.order_by().values_list("subject", "name").annotate(Sum("value"))
    attempts = {(subject, name): int(total) for subject, name, total in counters}
    lost_counts = failure_groups.count_by_subject(FLOW, ids)
    states = presence.read_if_available()
    lanes = states or {}
    due_seconds = {
        pk: waiting_seconds(pending_due, queued_until, lanes.get(pk), now)
        for pk, now, pending_due, queued_until in due_times
    }
    return {
        pk: Health(
            waiting=waiting.get(pk, 0),
            due_seconds=due_seconds.get(pk),
            lane=lanes.get(pk),
            is_known=states is not None,
            delivered=attempts.get((pk, "delivered"), 0),
            failed=attempts.get((pk, "failed"), 0),
            failures=lost_counts.get(pk, 0),
        )
        for pk in ids
    }


# -- what needs attention ------------------------------------------------------------------------
def is_failing(row: BizReceive) -> bool:
    """True if the subscription fails, and for more than the first attempts."""
    if row.failing_since is None:
        return False
    return row.failures >= MIN_FAILURES or row.failing_since <= timezone.now() - MIN_FAILING


def attention_condition() -> Q:
    """The condition of subscriptions that need attention: failing, disabled by the platform, with
    an open breaker, or with failures. Without Redis no breaker counts as open."""
    states = presence.read_if_available() or {}
    open_ids = [pk for pk, state in states.items() if state.is_open]
    lost_ids = FailureGroup.objects.filter(flow=FLOW, count__gt=0).values("subject")
    return (
        Q(failing_since__lte=timezone.now() - MIN_FAILING)
        | Q(failing_since__isnull=False, failures__gte=MIN_FAILURES)
        | Q(status=_Status.DISABLED)
        | Q(pk__in=open_ids)
        | Q(pk__in=lost_ids)
    )


def disabled_on(row: BizReceive) -> datetime | None:
    """The time when the platform disables the subscription if it goes on failing; None: never."""
    hours = settings.NOTIFY_DISABLE_AFTER_HOURS
    if row.failing_since is None or not hours or row.status == _Status.DISABLED:
        return None
    return row.failing_since + timedelta(hours=hours)
