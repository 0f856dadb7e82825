"""Notify's present state: counts and ages at a bounded cost, for `/metrics` and the overview.

Counts stop at MAX_COUNTED, because exhausted deliveries pile up until a person resends them. The
oldest delivery of each subscription costs one index dive.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from django.conf import settings
from django.utils.translation import gettext as _, gettext_noop

from msgplatform.core import outbound
from msgplatform.core.connections import RedisError
from msgplatform.core.data import sql
from msgplatform.core.data.counting import KeptCounts, count_up_to
from msgplatform.core.flows.health import Status, Wait
from msgplatform.core.flows.metric import Metrics, Sample
from msgplatform.core.lazy_text import lazy_message
from msgplatform.core.queues import jobs
from msgplatform.core.rates.breaker import STATE_NUMBERS
from notify import orders, presence
from notify.models import BizMsg, BizReceive, ReceiveMsg, first_due
from notify.monitor import counters
from notify.monitor.counters import DURATION, LATENCY, Histogram
from notify.subscriptions import limits, sandbox

MAX_COUNTED = 100_000
# A metric names this number of subscriptions, the worst: each is a time series in Prometheus.
MAX_NAMED = 50
# Failures in a row: the first wait of a schedule is short, so a second failure comes soon.
MIN_FAILURES = 2

_Delivery, _Status = ReceiveMsg.Status, BizReceive.Status
# Delivered deliveries are not counted: their number only grows until they are archived.
NOT_DELIVERED = (*ReceiveMsg.OPEN, *ReceiveMsg.FAILED)
_UP_TO = f"counted up to {MAX_COUNTED:,}"


def _count() -> dict[int | None, int]:
    """The number of undelivered deliveries by status; None: messages that are not split. A count
    stops at MAX_COUNTED."""
    (unsplit,) = count_up_to("biz_msg", "state = %s", [[int(BizMsg.State.ACCEPTED)]], MAX_COUNTED)
    counts: dict[int | None, int] = {None: unsplit}
    statuses = [[int(status)] for status in NOT_DELIVERED]
    numbers = count_up_to("receive_msg", "status = %s", statuses, MAX_COUNTED)
    counts.update(zip(NOT_DELIVERED, numbers, strict=True))
    return counts


open_counts = KeptCounts(_count)


def waiting_seconds(
    pending_due: datetime | None,
    queued_until: datetime | None,
    lane: presence.LaneState | None,
    now: datetime,
) -> float | None:
    """Seconds that a subscription's oldest due delivery has waited; None when none is due.

    `pending_due` and `queued_until` are `first_due` of both statuses, `now` is the database's time.
    A queued delivery waits since the due time that its sender reports, or at least since its
    claim.
    """
    ages = []
    if pending_due and pending_due <= now:
        ages.append((now - pending_due).total_seconds())
    if queued_until:
        claimed_at = queued_until - timedelta(seconds=settings.NOTIFY_LEASE_SECONDS)
        ages.append(max(0.0, (now - claimed_at).total_seconds()))
        if lane:
            ages.append(lane.oldest_for)
    return max(ages, default=None)


class Waiting(NamedTuple):
    """A subscription, with the times at which its first deliveries are due."""

    row: BizReceive
    pending: datetime | None  # the due time of the oldest pending delivery
    queued: datetime | None  # the first end of a queued delivery's lease
    lane: presence.LaneState | None

    @property
    def labels(self) -> dict[str, str]:
        row = self.row
        return {"subscription": str(row.pk), "biz": row.biz.name, "consumer": row.receive.name}

    @property
    def is_pushed(self) -> bool:
        """True if senders deliver now: it is not paused or disabled, and waits for no listener."""
        return self.row.status in BizReceive.ACTIVE and not self.row.receive.is_listened

    def oldest_seconds(self, now: datetime) -> float | None:
        """Seconds that the oldest due delivery has waited; None unless senders deliver now."""
        if not self.is_pushed:
            return None
        return waiting_seconds(self.pending, self.queued, self.lane, now)

    def expired_seconds(self, now: datetime) -> float:
        """Seconds that an expired lease has waited for the maker; 0 where the maker waits on
        purpose: for a listener, a person or a breaker, or because OUTBOUND is off."""
        is_held = outbound.is_off() or (self.lane is not None and self.lane.is_open)
        if self.queued is None or is_held or not self.is_pushed:
            return 0.0
        return max(0.0, (now - self.queued).total_seconds())


def read_waiting() -> list[Waiting]:
    """Read all subscriptions. Without Redis a queued delivery counts from its claim."""
    lanes = presence.read_if_available() or {}
    rows = BizReceive.objects.select_related("biz", "receive").only(
        "status",
        "failing_since",
        "failures",
        "biz__name",
        "receive__name",
        "receive__delivery",
        "receive__url",
    )
    first_pending, first_queued = first_due(_Delivery.PENDING), first_due(_Delivery.QUEUED)
    rows = rows.annotate(pending=first_pending, queued=first_queued).order_by("id")
    return [Waiting(row, row.pending, row.queued, lanes.get(row.pk)) for row in rows]


def oldest_seconds(rows: Iterable[Waiting], now: datetime) -> float | None:
    """Seconds that the oldest due delivery, or unsplit message, has waited; None when nothing is
    due."""
    ages = [age for age, _wait in longest_waits(rows, now)]
    if since := _unsplit_since():
        ages.append(max(0.0, (now - since).total_seconds()))
    return max(ages, default=None)


def waits() -> Iterator[Wait]:
    """Yield the wait of the oldest due delivery, without subscriptions whose failing has an
    alert; and the wait of the oldest unsplit message."""
    now, after = sql.now(), limits.failing_alert_after()
    for age, wait in longest_waits(read_waiting(), now):
        since, is_failing = wait.row.failing_since, wait.row.failures >= MIN_FAILURES
        if not (is_failing and after and since and since <= now - after):
            text = gettext_noop("A delivery for %(biz)s → %(consumer)s")
            names = {name: wait.labels[name] for name in ("biz", "consumer")}
            yield Wait("deliveries", lazy_message(text, **names), now - timedelta(seconds=age))
            break
    if accepted_at := _unsplit_since():
        text = gettext_noop("A message that was accepted")
        yield Wait("messages", lazy_message(text), accepted_at)


def _unsplit_since() -> datetime | None:
    """The time of acceptance of the oldest unsplit message. Costs one index dive."""
    unsplit = BizMsg.objects.filter(state=BizMsg.State.ACCEPTED).order_by("state", "id")
    return unsplit.values_list("created_at", flat=True).first()


def longest_waits(rows: Iterable[Waiting], now: datetime) -> list[tuple[float, Waiting]]:
    """Pairs (seconds overdue, row of `rows`), the longest first."""
    overdue_waits = [(age, wait) for wait in rows if (age := wait.oldest_seconds(now)) is not None]
    return sorted(overdue_waits, key=lambda pair: pair[0], reverse=True)


# -- /metrics ------------------------------------------------------------------------------------
METRICS = Metrics()
_SUBSCRIPTION = ("subscription", "biz", "consumer")
_DELIVERIES = METRICS.gauge(
    "notify_deliveries_open", f"Deliveries that did not succeed, or not yet; {_UP_TO}", "status"
)
_TO_SPLIT = METRICS.gauge("notify_messages_unsplit", f"Messages not yet split; {_UP_TO}")
_OLDEST = METRICS.gauge(
    "notify_oldest_seconds",
    "Age of the oldest due delivery, queued or not, or of the oldest message that is not yet split",
)
_EXPIRED = METRICS.gauge(
    "notify_expired_lease_seconds",
    "Since when the oldest expired lease waits to be queued again, where senders deliver now",
)
_OLDEST_OF_ONE = METRICS.gauge(
    "notify_subscription_oldest_seconds",
    f"Age of a subscription's oldest due delivery, queued or not; the {MAX_NAMED} oldest",
    *_SUBSCRIPTION,
)
_SUBSCRIPTIONS = METRICS.gauge("notify_subscriptions", "Subscriptions by status", "status")
_FAILING = METRICS.gauge(
    "notify_subscription_failing_seconds",
    f"Since an active subscription's last success, of those that fail; the {MAX_NAMED} longest",
    *_SUBSCRIPTION,
)
_MARKER_ORDERS = METRICS.gauge("notify_marker_orders", "Result batches to be marked")
_MARKER_OLDEST = METRICS.gauge("notify_marker_oldest_seconds", "Age of the oldest result batch")
_BREAKERS = METRICS.gauge(
    "notify_subscription_breaker",
    "0 closed, 1 half-open (probing), 2 open; no sample for a subscription that is idle",
    *_SUBSCRIPTION,
)
_IN_FLIGHT = METRICS.gauge(
    "notify_subscription_in_flight", "Requests without an answer", *_SUBSCRIPTION
)
_WAITING = METRICS.gauge(
    "notify_subscription_waiting", "Deliveries in a sender's hand", *_SUBSCRIPTION
)
_ATTEMPTS = METRICS.counter(
    "notify_attempts", "Requests to consumers, by outcome: delivered or failed", "outcome"
)
_EXHAUSTED = METRICS.counter("notify_exhausted", "Deliveries that used up their attempts")
_HISTOGRAMS = {
    LATENCY: METRICS.histogram(LATENCY.metric, "From the acceptance of a message to its delivery"),
    DURATION: METRICS.histogram(DURATION.metric, "One request to a consumer"),
}


def samples() -> Iterator[Sample]:
    now = sql.now()
    rows = read_waiting()
    counts_by_status = open_counts.read()
    for delivery_status in NOT_DELIVERED:
        name = delivery_status.name.lower()
        yield _DELIVERIES.of(counts_by_status[delivery_status], status=name)
    yield _TO_SPLIT.of(counts_by_status[None])
    yield _OLDEST.of(oldest_seconds(rows, now) or 0.0)
    yield _EXPIRED.of(max((wait.expired_seconds(now) for wait in rows), default=0.0))
    for age, wait in longest_waits(rows, now)[:MAX_NAMED]:
        yield _OLDEST_OF_ONE.of(age, **wait.labels)
    for status in _Status:
        number = sum(wait.row.status == status for wait in rows)
        yield _SUBSCRIPTIONS.of(number, status=status.name.lower())
    # The subscriptions of the alert notify.failing, which a pause resolves.
    failing = [
        (wait.row.failing_since, wait)
        for wait in rows
        if wait.row.failing_since
        and wait.row.failures >= MIN_FAILURES
        and wait.is_pushed
        and not sandbox.is_sandbox(wait.row.receive.url)
    ]
    for since, wait in sorted(failing, key=lambda pair: pair[0])[:MAX_NAMED]:
        yield _FAILING.of(max(0.0, (now - since).total_seconds()), **wait.labels)
    try:
        yield _MARKER_ORDERS.of(jobs.depths([orders.MARKER_QUEUE])[orders.MARKER_QUEUE])
        yield _MARKER_OLDEST.of(jobs.oldest_seconds(orders.MARKER_QUEUE))
        labels = {wait.row.pk: wait.labels for wait in rows}
        # Senders report only the subscriptions whose lanes they have.
        for pk, state in presence.read().items():
            if pk in labels and (state.is_open or state.in_flight or state.waiting):
                yield _BREAKERS.of(STATE_NUMBERS[state.breaker], **labels[pk])
                yield _IN_FLIGHT.of(state.in_flight, **labels[pk])
                yield _WAITING.of(state.waiting, **labels[pk])
        totals = counters.totals()  # since the work Redis was flushed
        for outcome in ("delivered", "failed"):
            yield _ATTEMPTS.of(totals.get(outcome, 0), outcome=outcome)
        yield _EXHAUSTED.of(totals.get("exhausted", 0))
        for histogram, metric in _HISTOGRAMS.items():
            for end, count in cumulative(histogram, totals):
                yield metric.bucket(end, count)
            yield metric.of(totals.get(f"{histogram.name}_seconds", 0.0))
    except RedisError:
        return  # the samples of the database are not withheld for that


def read_status() -> Status:
    """Notify's status for the overview. Raises errors of the database."""
    by_status = open_counts.read()
    backlog = by_status[None] + sum(by_status[status] for status in ReceiveMsg.OPEN)
    facts: dict[str, int | float | str] = {}
    for status in ReceiveMsg.OPEN:
        count = by_status[status]
        if count >= MAX_COUNTED:  # the backlog is larger
            facts[str(status.label)] = _("%d or more") % count
        elif count and status == _Delivery.HELD:
            facts[str(status.label)] = count
    rows, now = read_waiting(), sql.now()
    oldest_by = {str(wait.row.pk): age for age, wait in longest_waits(rows, now)}
    return Status(backlog, oldest_seconds(rows, now), facts, oldest_by=oldest_by)


def cumulative(histogram: Histogram, counts: Mapping[str, float]) -> list[tuple[str, float]]:
    """Pairs (upper bound, cumulative count), the last pair for +Inf. An earlier, wider bucket
    counts at its upper bound."""
    by_end: defaultdict[float, float] = defaultdict(float)
    for bucket in histogram.stored_buckets:
        by_end[bucket.high] += counts.get(bucket.name, 0)
    total, pairs = 0.0, []
    for bucket in histogram.buckets:
        total += by_end[bucket.high]
        pairs.append((bucket.upper_bound, total))
    return pairs
