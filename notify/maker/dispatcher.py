"""Queueing: due deliveries become work orders on the queues of their subscriptions.

Deliveries are chosen with their sizes first, then claimed, then put on the queues. What a killed
maker claimed and did not put is due again when its lease is over.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.conf import settings
from django.db.models.functions import Now

from msgplatform.core.data import claims, sql, transactions
from msgplatform.core.data.chunks import chunks
from msgplatform.core.queues import jobs
from notify import due, orders
from notify.directory import Subscription, Subscriptions
from notify.maker import enqueue, poison
from notify.maker.capacity import Capacity
from notify.maker.payloads import Message, Texts, select
from notify.models import BizReceive, ReceiveMsg
from notify.turns import in_turns

# Deliveries that are claimed and put in one go.
STEP_DELIVERIES = 2_000
# What is queued in one turn, give or take a step: splitting must not wait for a long backlog.
TURN_DELIVERIES = 20_000
TURN_SECONDS = 0.15
# Subscriptions asked for their due deliveries in one statement.
_ASKED = 40
# With results this old waiting, expired leases are not reclaimed: their outcome may be in there.
MARKER_LAG_SECONDS = 5.0
_Status = ReceiveMsg.Status
SENDABLE = (BizReceive.Status.NORMAL, BizReceive.Status.SKIPPING)
_WAITING = (int(_Status.PENDING), int(_Status.QUEUED))

# (next_at, id, message id): the order in which deliveries are queued.
_Due = tuple[datetime, int, int]
# A delivery to be claimed: its id, its message, and since when it is due (unix seconds).
_Fitting = tuple[int, Message, float]
# What one step claims of each subscription.
_Chosen = list[tuple[Subscription, list[_Fitting]]]


@dataclass(slots=True)
class Backlog:
    """A subscription with due deliveries, in which statuses, and since when the first waits."""

    subscription: Subscription
    first: datetime
    statuses: list[int] = field(default_factory=list)


class Dispatcher:
    """`only`: ids of the subscriptions to queue for; empty means all."""

    def __init__(self, subscriptions: Subscriptions, only: Collection[int] = ()) -> None:
        self._subscriptions = subscriptions
        rows = BizReceive.objects.filter(status__in=SENDABLE)
        if only:
            rows = rows.filter(id__in=frozenset(only))
        # Built once: most turns find nothing, and building costs more than the answer.
        self._times = rows.values_list("id", Now(), *map(due.first, _WAITING))
        # Bytes that a delivery of each subscription took lately: no more are read than may fit.
        self._sizes: dict[int, float] = {}

    def due(self) -> list[Backlog]:
        """Who has due deliveries, in turns of systems, the longest waiting first: one query."""
        known, found = self._subscriptions, []
        for subscription_id, now, *times in self._times.all():
            waiting = {s: at for s, at in zip(_WAITING, times, strict=True) if at and at <= now}
            if not waiting:
                continue
            if known.get(subscription_id) is None and not known.is_unusable(subscription_id):
                known.refresh(at_once=True)  # it is newer than what is known
            # One that cannot be read is not found: its deliveries wait until it is corrected.
            subscription = known.get(subscription_id)
            if subscription and subscription.sendable:
                found.append(Backlog(subscription, min(waiting.values()), list(waiting)))
        found.sort(key=lambda backlog: backlog.first)
        return in_turns(found, lambda backlog: backlog.subscription.biz_id)

    def queue(
        self, backlogs: Sequence[Backlog], capacity: Capacity, read: Texts
    ) -> tuple[int, set[int]]:
        """Queue as much as the capacity allows: how many deliveries, and which subscriptions are
        behind, because some of their due deliveries still wait.

        In rounds of one order each, so that a long backlog does not delay a short one; a system
        with many subscriptions does not delay one with few.
        """
        waiting = list(backlogs)
        expired = any(_Status.QUEUED in backlog.statuses for backlog in backlogs)
        if expired and are_results_late():
            # The marker is behind: what looks like an expired lease may be delivered already.
            pending = int(_Status.PENDING)
            left = [b for b in backlogs if pending in b.statuses]
            waiting = [Backlog(b.subscription, b.first, [pending]) for b in left]
        behind = {b.subscription.id for b in backlogs if _Status.PENDING in b.statuses}
        queued = 0
        until = time.monotonic() + TURN_SECONDS
        while waiting and queued < TURN_DELIVERIES and time.monotonic() < until:
            again: list[Backlog] = []
            for some in chunks(waiting, _ASKED):
                if time.monotonic() >= until:
                    break
                count, more = self._step(some, capacity, read, behind)
                queued += count
                again += more
            waiting = again
        return queued, behind

    def _step(
        self, asked: Sequence[Backlog], capacity: Capacity, read: Texts, behind: set[int]
    ) -> tuple[int, list[Backlog]]:
        """One order for each; how many deliveries, and who may get another one."""
        limits = {}
        for backlog in asked:
            if offer := capacity.offer(backlog.subscription):
                size = self._sizes.get(backlog.subscription.id, 0.0)
                fits = int(2 * offer.bytes / size) + 1 if size else offer.items
                limits[backlog.subscription.id] = max(1, min(offer.items, fits))
        offered = [backlog for backlog in asked if backlog.subscription.id in limits]
        found = _choose(offered, limits)
        chosen: _Chosen = []
        queued, again = 0, []
        for backlog in offered:
            subscription = backlog.subscription
            deliveries, limit = found.get(subscription.id, []), limits[subscription.id]
            fitting, looked_at = self._fit(subscription, deliveries[:limit], capacity, read)
            if len(deliveries) < limit and looked_at == len(deliveries):
                behind.discard(subscription.id)
            else:
                again.append(backlog)
            if fitting:
                chosen.append((subscription, fitting))
            sizes = [message.size for _, items in chosen for _, message, _ in items]
            if len(sizes) >= STEP_DELIVERIES or sum(sizes) >= enqueue.STEP_BYTES:
                queued += _claim_and_put(chosen, capacity)
                chosen = []
        return queued + _claim_and_put(chosen, capacity), again

    def _fit(
        self, subscription: Subscription, due: Sequence[_Due], capacity: Capacity, read: Texts
    ) -> tuple[list[_Fitting], int]:
        """The first deliveries, as many as fit into the next order, and how many were looked at."""
        offer = capacity.offer(subscription)
        if not due or not offer:
            return [], 0
        messages = read.get(message_id for _, _, message_id in due)
        gone = [pk for _, pk, message_id in due if message_id not in messages]
        there = [
            (pk, messages[message], sql.read_time(next_at).timestamp())
            for next_at, pk, message in due
            if message in messages
        ]
        unreadable = [pk for pk, message, _ in there if not message.is_readable]
        poison.set_aside(subscription.id, gone, poison.GONE)
        poison.set_aside(subscription.id, unreadable, poison.UNREADABLE)
        there = [item for item in there if item[1].is_readable]
        lost = len(gone) + len(unreadable)
        if not there:
            return [], lost
        sizes = [message.size for _, message, _ in there]
        self._sizes[subscription.id] = sum(sizes) / len(sizes)
        fitting = there[: orders.fitting(sizes, offer.items, offer.bytes)]
        capacity.take(subscription)
        return fitting, lost + len(fitting)


def are_results_late() -> bool:
    """True if the marker is behind: a delivery whose lease is over may have arrived."""
    return jobs.oldest_seconds(orders.MARKER_QUEUE) >= MARKER_LAG_SECONDS


def _choose(asked: Sequence[Backlog], limits: dict[int, int]) -> dict[int, list[_Due]]:
    """The first due deliveries of each subscription, in one statement.

    Each status is an index range of its own, read in its order; one range over both would be
    sorted.
    """
    parts: list[str] = []
    parameters: list[int] = []
    for number, backlog in enumerate(asked):
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
    found: dict[int, list[_Due]] = {}
    rows = transactions.retrying(lambda: select(" UNION ALL ".join(parts), parameters))
    for subscription_id, next_at, delivery_id, message_id in rows:
        found.setdefault(subscription_id, []).append((next_at, delivery_id, message_id))
    for deliveries in found.values():
        deliveries.sort()
    return found


def _claim_and_put(chosen: _Chosen, capacity: Capacity) -> int:
    """Claim the deliveries and put an order for each subscription; how many deliveries."""
    ids = [delivery_id for _, items in chosen for delivery_id, _, _ in items]
    if not ids:
        return 0
    claim = claims.claim_ids(
        ReceiveMsg.objects.filter(status__in=_WAITING), ids,
        lease=settings.NOTIFY_LEASE_SECONDS, until="next_at", read=("send_times",),
        set={"status": _Status.QUEUED, "updated_at": Now()},
    )  # fmt: skip
    lease_until = claim.lease_until.timestamp()
    won = claim.read  # less than asked for, when another maker was faster
    made = [
        enqueue.Claimed(
            subscription, claim.token, lease_until,
            [(pk, won[pk][0] + 1, message, due) for pk, message, due in items if pk in won],
            capacity.is_probe_requested(subscription),
        )
        for subscription, items in chosen
    ]  # fmt: skip
    enqueue.put(made)
    return len(won)
