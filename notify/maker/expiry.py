"""Ends deliveries behind the open breaker of a dead consumer, and deliveries that no listener
fetches.

Without a breaker a delivery is tried by its schedule, and then exhausted. An open breaker lets only
a probe through from time to time. So a delivery ends here without an attempt if it had waited for
the length of the whole schedule when the latest probe failed. With a short schedule it has waited
for NOTIFY_BREAKER_KEEP_HOURS: an outage of seconds must not end a backlog without an attempt. A
maker ends deliveries only after it has run for as long without a gap, and has seen the breaker open
for as long (`Continuity`), because failures and due deliveries also grow old without an attempt
while the platform stands still.

A delivery for a consumer for development waits three days for a listener, whatever the schedule.
Then it is skipped, because nothing failed and nobody needs to act. After a standstill of the
platform engineers have MIN_LISTEN_SECONDS to listen again.
"""

import math
import time
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial

from django.conf import settings
from django.db import transaction

from msgplatform.core.daemons.timer import work_on_some
from msgplatform.core.data import sql, transactions
from msgplatform.core.failpoints import failpoint
from notify import orders
from notify.directory import Subscription
from notify.maker import ending
from notify.models import BizReceive, ReceiveMsg
from notify.monitor import counters, failures
from notify.subscriptions import limits

PAGE = 500
# Seconds of ending in one turn, plus at most two pages. When the host of thousands of subscriptions
# is dead, other deliveries must not wait.
MAX_SECONDS = 0.15
ERROR = "not tried, breaker open"
UNFETCHED = "not fetched, nobody listens"
# A longer time without a turn, or without a look at the senders' reports, is a gap. An idle maker
# takes a turn every two seconds; a server that is restarted is mostly back sooner.
MAX_GAP_SECONDS = 60.0
# Half a working day: time for engineers to listen again, and a platform that is switched off every
# night still gets there.
MIN_LISTEN_SECONDS = 4 * 3600.0
_Status = ReceiveMsg.Status


class Continuity:
    """The times since which nothing has kept deliveries from being tried, as one maker knows. Times
    are monotonic seconds."""

    def __init__(self) -> None:
        self.since = time.monotonic()
        # Subscription → time since which senders report its breaker as open.
        self.open_since: dict[int, float] = {}
        self._turned_at = self._reported_at = _clocks()

    def look_for_gap(self) -> None:
        """Restart `since` if the last complete turn is too long ago: the maker or its machine stood
        still, the database or Redis was unavailable, or the marker was behind."""
        if _seconds_since(self._turned_at) > MAX_GAP_SECONDS:
            self.since = time.monotonic()

    def end_turn(self) -> None:
        """Note that a turn was complete: it had no error, and could have sent a probe."""
        self._turned_at = _clocks()

    def note_open(self, subscription_ids: Iterable[int]) -> None:
        """Note the breakers that senders report as open. Other breakers are forgotten."""
        if _seconds_since(self._reported_at) > MAX_GAP_SECONDS:
            self.open_since = {}
        now = time.monotonic()
        self.open_since = {pk: self.open_since.get(pk, now) for pk in subscription_ids}
        self._reported_at = _clocks()

    def has_lasted(self, seconds: float) -> bool:
        """True if there was no gap for so long."""
        return time.monotonic() - self.since >= seconds

    def is_long_open(self, subscription_id: int) -> bool:
        """True if the breaker is open, and probes went, for long enough to end deliveries."""
        hours: float = settings.NOTIFY_BREAKER_KEEP_HOURS
        since = max(self.since, self.open_since.get(subscription_id, math.inf))
        return time.monotonic() - since >= hours * 3600


def _clocks() -> tuple[float, float]:
    """Monotonic and unix seconds: the first stand still while a machine is suspended."""
    return time.monotonic(), time.time()


def _seconds_since(clocks: tuple[float, float]) -> float:
    """The seconds since `_clocks()` returned `clocks`, by the clock that advanced more."""
    return max(now - start for now, start in zip(_clocks(), clocks, strict=True))


def expire(
    behind_breaker: Iterable[tuple[Subscription, float]],
    event_types: counters.CatalogueSubjects,
    seconds: float = MAX_SECONDS,
) -> int:
    """Exhaust up to two pages of each subscription's deliveries until `seconds` are over; returns
    the number of deliveries.

    `behind_breaker`: (subscription, seconds since the latest attempt failed). Raises RedisError.
    """
    now = sql.now()
    dead = [
        (subscription, open_for)
        for subscription, open_for in behind_breaker
        # The cached settings are checked first, because a statement for each would be thousands.
        if subscription.failing_since
        and subscription.failing_since <= _before(subscription, open_for, now)
    ]
    if not dead:
        return 0
    event_types.refresh()
    # A queued delivery ends too, after its lease: it is not queued again behind a breaker. While
    # results are late, a queued delivery may have arrived, so it waits.
    is_late = orders.are_results_late()
    waiting = (_Status.PENDING,) if is_late else ReceiveMsg.WAITING

    def end(pair: tuple[Subscription, float]) -> int:
        subscription, open_for = pair
        return transactions.retrying(
            partial(_expire_one, subscription, open_for, event_types, waiting)
        )

    return work_on_some(end, dead, time.monotonic() + seconds)


def _before(subscription: Subscription, open_for: float, now: datetime) -> datetime:
    """Deliveries end if their subscription has failed since this time."""
    return now - timedelta(seconds=open_for + limits.breaker_keep(subscription.schedule))


def _expire_one(
    subscription: Subscription,
    open_for: float,
    event_types: counters.CatalogueSubjects,
    statuses: Iterable[int],
) -> int:
    # A fixed time, because this process may be frozen after each line.
    before = _before(subscription, open_for, sql.now())
    failing = BizReceive.objects.filter(id=subscription.id, failing_since__lte=before)
    if not failing.exists():  # a look locks nothing
        return 0
    failpoint("maker_before_expiry")
    with transaction.atomic():
        began_at, ended_ids = sql.now(), list[int]()
        for status in statuses:
            page = _page(subscription, status, before)
            ended_ids += ending.end(page, {status}, before, _Status.EXHAUSTED, ERROR)
        if not ended_ids:
            return 0
        # Read the subscription again under its lock: it may have had a success meanwhile. The
        # deliveries are locked first, in the same order as by a marker.
        if failing.select_for_update().values_list("pk", flat=True).first() is None:
            transaction.set_rollback(True)
            return 0
        counts = failures.count_ended(
            _Status.EXHAUSTED, subscription.id, ended_ids, ERROR, began_at, event_types
        )
    counters.add_totals(counts)
    return len(ended_ids)


def expire_unfetched(subscriptions: Iterable[Subscription]) -> int:
    """Skip deliveries that have been due for UNFETCHED_SECONDS, up to two pages for each of these
    subscriptions until MAX_SECONDS are over; returns the number of deliveries."""

    def end(subscription: Subscription) -> int:
        return transactions.retrying(partial(_expire_unfetched, subscription))

    active = [subscription for subscription in subscriptions if subscription.is_active]
    return work_on_some(end, active, time.monotonic() + MAX_SECONDS)


def _expire_unfetched(subscription: Subscription) -> int:
    before = sql.now() - timedelta(seconds=limits.UNFETCHED_SECONDS)
    ended_count = 0
    for status in ReceiveMsg.WAITING:  # queued: its listener is gone
        with transaction.atomic():
            if page := _page(subscription, status, before):
                ended_count += len(ending.end(page, {status}, before, _Status.SKIPPED, UNFETCHED))
    return ended_count


def _page(subscription: Subscription, status: int, before: datetime) -> list[int]:
    """The first deliveries in this status that were due by `before`."""
    rows = ReceiveMsg.objects.filter(
        status=status, biz_receive_id=subscription.id, next_at__lte=before
    )
    return list(rows.order_by("next_at").values_list("id", flat=True)[:PAGE])
