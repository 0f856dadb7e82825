"""Queueing: due deliveries become work orders on the queues of their subscriptions.

A step chooses deliveries with their sizes, claims them, and puts them on the queues. A delivery
that a killed maker claimed and did not put is due again when its lease is over.
"""

import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from django.conf import settings
from django.db.models.functions import Now

from msgplatform.core.daemons.timer import Every
from msgplatform.core.data import chunks, claims, sql, transactions
from notify import orders
from notify.directory import Subscription, Subscriptions
from notify.maker import ending, enqueue
from notify.maker.capacity import Capacity
from notify.maker.enqueue import Message, Texts, select
from notify.models import BizReceive, ReceiveMsg, first_due, with_deliveries

# Deliveries that one step claims and puts.
STEP_DELIVERIES = 2_000
# Deliveries that one turn queues, plus at most a step. Splitting must not wait for a long backlog.
TURN_DELIVERIES = 20_000
TURN_SECONDS = 0.15
# With up to FEW subscriptions each turn looks at all. With more a turn looks at subscriptions with
# waiting deliveries, and once in WHOLE_SECONDS at all: a delivery that another program has made due
# may be that late.
FEW, WHOLE_SECONDS = 500, 1.0
_SUBSCRIPTIONS_PER_QUERY = 40  # one statement reads the due deliveries of so many
_Status = ReceiveMsg.Status
_WAITING = (int(_Status.PENDING), int(_Status.QUEUED))

# (next_at, id, message id): the order in which deliveries are queued.
_Due = tuple[datetime, int, int]
# A delivery to be claimed: (id, message, unix seconds at which it became due).
_Candidate = tuple[int, Message, float]
# The deliveries of each subscription that one step claims.
_Selection = list[tuple[Subscription, list[_Candidate]]]


class Backlog(msgspec.Struct):
    """A subscription with due deliveries, in which statuses, and since when the first waits."""

    subscription: Subscription
    first: datetime
    statuses: list[int] = msgspec.field(default_factory=list)


class Dispatcher:
    def __init__(self, subscriptions: Subscriptions) -> None:
        self._subscriptions = subscriptions
        rows = BizReceive.objects.filter(status__in=BizReceive.ACTIVE)
        # Built once: most turns find nothing, and building costs more than the answer.
        self._times = with_deliveries(rows, _WAITING).values_list(
            "id", Now(), *map(first_due, _WAITING)
        )
        self._next_whole = Every(WHOLE_SECONDS)
        # Subscriptions with waiting deliveries: found by the last look at all, or split since.
        self._waiting_ids: set[int] = set()
        # Subscription → mean bytes of its latest deliveries, to read no more than may fit.
        self._sizes: dict[int, float] = {}

    def due(self) -> list[Backlog]:
        """Subscriptions with due deliveries, in turns of systems, the longest waiting first. Costs
        one query."""
        cache, backlogs = self._subscriptions, []
        for subscription_id, now, *times in self._read_times():
            waiting = {s: at for s, at in zip(_WAITING, times, strict=True) if at and at <= now}
            if not waiting:
                continue
            if cache.get(subscription_id) is None and not cache.is_unusable(subscription_id):
                cache.refresh(at_once=True)  # the subscription is newer than the cache
            # An unusable subscription is not in the cache. Its deliveries wait for a correction.
            subscription = cache.get(subscription_id)
            if subscription and subscription.is_sendable:
                backlogs.append(Backlog(subscription, min(waiting.values()), list(waiting)))
        backlogs.sort(key=lambda backlog: backlog.first)
        return orders.in_turns(backlogs, lambda backlog: backlog.subscription.biz_id)

    def expect(self, subscription_ids: Iterable[int]) -> None:
        """Look in the next turn at these subscriptions, which have new deliveries."""
        self._waiting_ids.update(subscription_ids)

    def look_at_all(self) -> None:
        self._next_whole.at_once()

    def _read_times(self) -> Sequence[tuple[Any, ...]]:
        """Rows of (subscription id, present time, first due time in each status of _WAITING)."""
        if not self._next_whole.is_due:
            ids = sorted(self._waiting_ids)
            return list(self._times.filter(id__in=ids)) if ids else ()
        rows = list(self._times.all())
        self._waiting_ids = {pk for pk, *_times in rows}
        if len(self._subscriptions.known) > FEW:
            self._next_whole.restart()
        return rows

    def queue(
        self, backlogs: Sequence[Backlog], capacity: Capacity, read: Texts
    ) -> tuple[int, set[int]]:
        """Queue as much as the capacity allows. Returns the number of queued deliveries and the
        subscriptions that are behind, which have more due deliveries.

        A round queues one order for each subscription, so that neither a long backlog delays a
        short backlog, nor a system with many subscriptions a system with few.
        """
        waiting = list(backlogs)
        has_expired_leases = any(_Status.QUEUED in backlog.statuses for backlog in backlogs)
        if has_expired_leases and orders.are_results_late():
            # Late results: a delivery with an expired lease may have arrived already.
            pending = int(_Status.PENDING)
            pending_backlogs = [b for b in backlogs if pending in b.statuses]
            waiting = [Backlog(b.subscription, b.first, [pending]) for b in pending_backlogs]
        behind_ids = {b.subscription.id for b in backlogs if _Status.PENDING in b.statuses}
        queued_count = 0
        until = time.monotonic() + TURN_SECONDS
        while waiting and queued_count < TURN_DELIVERIES and time.monotonic() < until:
            next_round: list[Backlog] = []
            for part in chunks(waiting, _SUBSCRIPTIONS_PER_QUERY):
                if time.monotonic() >= until:
                    break
                count, more = self._step(part, capacity, read, behind_ids)
                queued_count += count
                next_round += more
            waiting = next_round
        return queued_count, behind_ids

    def _step(
        self, backlogs: Sequence[Backlog], capacity: Capacity, read: Texts, behind_ids: set[int]
    ) -> tuple[int, list[Backlog]]:
        """Queue one order for each backlog. Returns the number of deliveries, and the backlogs that
        may get another order."""
        limits = {}
        for backlog in backlogs:
            if offer := capacity.offer(backlog.subscription):
                size = self._sizes.get(backlog.subscription.id, 0.0)
                fits = int(2 * offer.bytes / size) + 1 if size else offer.items
                limits[backlog.subscription.id] = max(1, min(offer.items, fits))
        with_offer = [backlog for backlog in backlogs if backlog.subscription.id in limits]
        due_deliveries = _read_due(with_offer, limits)
        selection: _Selection = []
        queued_count, next_round = 0, []
        for backlog in with_offer:
            subscription = backlog.subscription
            deliveries, limit = due_deliveries.get(subscription.id, []), limits[subscription.id]
            candidates, looked_at = self._fit(subscription, deliveries[:limit], capacity, read)
            if len(deliveries) < limit and looked_at == len(deliveries):
                behind_ids.discard(subscription.id)
            else:
                next_round.append(backlog)
            if candidates:
                selection.append((subscription, candidates))
            sizes = [message.size for _, items in selection for _, message, _ in items]
            if len(sizes) >= STEP_DELIVERIES or sum(sizes) >= enqueue.STEP_BYTES:
                queued_count += _claim_and_put(selection, capacity)
                selection = []
        return queued_count + _claim_and_put(selection, capacity), next_round

    def _fit(
        self, subscription: Subscription, due: Sequence[_Due], capacity: Capacity, read: Texts
    ) -> tuple[list[_Candidate], int]:
        """The first deliveries, as many as fit into the next order, and the number looked at."""
        offer = capacity.offer(subscription)
        if not due or not offer:
            return [], 0
        messages = read.get(message_id for _, _, message_id in due)
        orphan_ids = [pk for _, pk, message_id in due if message_id not in messages]
        readable = [
            (pk, messages[message], sql.read_time(next_at).timestamp())
            for next_at, pk, message in due
            if message in messages
        ]
        unreadable_ids = [pk for pk, message, _ in readable if not message.is_readable]
        ending.set_aside(subscription.id, orphan_ids, ending.GONE)
        ending.set_aside(subscription.id, unreadable_ids, ending.UNREADABLE)
        readable = [item for item in readable if item[1].is_readable]
        unsendable_count = len(orphan_ids) + len(unreadable_ids)
        if not readable:
            return [], unsendable_count
        sizes = [message.size for _, message, _ in readable]
        self._sizes[subscription.id] = sum(sizes) / len(sizes)
        if not capacity.admits(offer, sizes[0]):
            return [], unsendable_count
        candidates = readable[: orders.fitting(sizes, offer.items, offer.bytes)]
        capacity.take(subscription)
        return candidates, unsendable_count + len(candidates)


def _read_due(backlogs: Sequence[Backlog], limits: dict[int, int]) -> dict[int, list[_Due]]:
    """The first due deliveries of each subscription, in one statement.

    Each status is a separate SELECT, read in the order of the index. A SELECT of both statuses
    would sort.
    """
    parts: list[str] = []
    parameters: list[int] = []
    for number, backlog in enumerate(backlogs):
        for status in backlog.statuses:
            parts.append(
                f"SELECT * FROM (SELECT biz_receive_id, next_at, id, msg_id FROM receive_msg "  # noqa: S608
                f"WHERE status = %s AND biz_receive_id = %s AND next_at <= {sql.now_sql()} "
                f"ORDER BY next_at, id LIMIT %s) AS part_{number}_{status}"
            )
            subscription_id = backlog.subscription.id
            parameters += [status, subscription_id, limits[subscription_id]]
    if not parts:
        return {}
    by_subscription: dict[int, list[_Due]] = {}
    rows = transactions.retrying(lambda: select(" UNION ALL ".join(parts), parameters))
    for subscription_id, next_at, delivery_id, message_id in rows:
        by_subscription.setdefault(subscription_id, []).append((next_at, delivery_id, message_id))
    for deliveries in by_subscription.values():
        deliveries.sort()
    return by_subscription


def _claim_and_put(selection: _Selection, capacity: Capacity) -> int:
    """Claim the deliveries and put an order for each subscription; returns the deliveries put."""
    ids = [delivery_id for _, items in selection for delivery_id, _, _ in items]
    if not ids:
        return 0
    claim = claims.claim_ids(
        ReceiveMsg.objects.filter(status__in=_WAITING), ids,
        lease=settings.NOTIFY_LEASE_SECONDS, until="next_at", read=("send_times",),
        changes={"status": _Status.QUEUED, "updated_at": Now()},
    )  # fmt: skip
    lease_until = claim.lease_until.timestamp()
    attempts = claim.read  # of fewer deliveries than selected, when another maker was faster
    claimed_orders = [
        enqueue.ClaimedDeliveries(
            subscription, claim.token, lease_until,
            [(pk, attempts[pk][0] + 1, *item) for pk, *item in items if pk in attempts],
            capacity.is_probe_requested(subscription),
        )
        for subscription, items in selection
    ]  # fmt: skip
    enqueue.put(claimed_orders)
    return len(attempts)
