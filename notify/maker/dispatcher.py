"""Queueing: due copies become work orders on the queues of their subscriptions.

Copies are chosen with their sizes first, then claimed, then put on the queues; what was claimed
and not put (a killed maker) is due again when its lease is over.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models.functions import Now

from msgplatform.core import alerts
from msgplatform.core.data import claims, sql
from msgplatform.core.data.chunks import chunks
from msgplatform.core.queues import jobs
from notify import orders
from notify.directory import Subscription, Subscriptions
from notify.maker import due, enqueue
from notify.maker.capacity import Room
from notify.maker.payloads import Message, Texts
from notify.models import BizReceive, ReceiveMsg

# Copies that are claimed and put in one go.
STEP_COPIES = 2_000
# Copies queued in one turn, give or take a step: splitting must not wait for a long backlog.
TURN_COPIES = 20_000
# Subscriptions asked for their due copies in one statement.
_ASKED = 40
# With results this old waiting, expired leases are not reclaimed: their outcome may be in there.
MARKER_LAG_SECONDS = 5.0
_Status = ReceiveMsg.Status
SENDABLE = (BizReceive.Status.NORMAL, BizReceive.Status.SKIPPING)
_WAITING = (int(_Status.PENDING), int(_Status.QUEUED))

# (next_at, id, message id): the order in which copies are queued.
_Due = tuple[datetime, int, int]


@dataclass(slots=True)
class Backlog:
    """A subscription with due copies, in which statuses, and how long the first has waited."""

    subscription: Subscription
    first: datetime
    statuses: list[int] = field(default_factory=list)


class Dispatcher:
    """`only`: ids of the subscriptions to queue for; empty means all."""

    def __init__(self, subscriptions: Subscriptions, only: Collection[int] = ()) -> None:
        self._subscriptions = subscriptions
        self._only = frozenset(only)
        # What a copy of each subscription took lately: as many as may fit are looked at.
        self._sizes: dict[int, float] = {}

    def due(self) -> list[Backlog]:
        """Who has copies that are due, the longest waiting first: one query."""
        rows = BizReceive.objects.filter(status__in=SENDABLE)
        if self._only:
            rows = rows.filter(id__in=self._only)
        first = {status: due.first(status) for status in _WAITING}
        found = []
        for subscription_id, now, *times in rows.values_list("id", Now(), *first.values()):
            waiting = {s: at for s, at in zip(first, times, strict=True) if at and at <= now}
            subscription = self._known(subscription_id) if waiting else None
            if subscription and subscription.sendable:
                found.append(Backlog(subscription, min(waiting.values()), list(waiting)))
        return sorted(found, key=lambda backlog: backlog.first)

    def queue(self, backlogs: Sequence[Backlog], room: Room, read: Texts) -> tuple[int, set[int]]:
        """Queue what there is room for; how many copies, and which subscriptions are behind:
        some of their due copies still wait.

        In rounds of one order each, so that a long backlog does not delay a short one.
        """
        waiting = _reclaimable(backlogs)
        behind = {b.subscription.id for b in backlogs if _Status.PENDING in b.statuses}
        queued = 0
        while waiting and queued < TURN_COPIES:
            again: list[Backlog] = []
            for some in chunks(waiting, _ASKED):
                count, more = self._step(some, room, read, behind)
                queued += count
                again += more
            waiting = again
        return queued, behind

    # -- who -------------------------------------------------------------------------------------
    def _known(self, subscription_id: int) -> Subscription | None:
        """None for one that cannot be read: its copies wait."""
        known = self._subscriptions
        if known.get(subscription_id) is None and not known.is_unusable(subscription_id):
            known.refresh(at_once=True)  # it is newer than what is known
        return known.get(subscription_id)

    # -- which copies ----------------------------------------------------------------------------
    def _step(
        self, asked: Sequence[Backlog], room: Room, read: Texts, behind: set[int]
    ) -> tuple[int, list[Backlog]]:
        """One order for each; how many copies, and who may get another one."""
        limits = {}
        for backlog in asked:
            if offer := room.offer(backlog.subscription):
                size = self._sizes.get(backlog.subscription.id, 0.0)
                fits = int(2 * offer.bytes / size) + 1 if size else offer.items
                limits[backlog.subscription.id] = max(1, min(offer.items, fits))
        found = _choose([b for b in asked if b.subscription.id in limits], limits)
        chosen: list[tuple[Subscription, list[tuple[int, Message]]]] = []
        queued, again = 0, []
        for backlog in asked:
            subscription = backlog.subscription
            if subscription.id not in limits:
                continue
            copies, limit = found.get(subscription.id, []), limits[subscription.id]
            fitting, looked_at = self._fit(subscription, copies[:limit], room, read)
            if len(copies) < limit and looked_at == len(copies):
                behind.discard(subscription.id)
            else:
                again.append(backlog)
            if fitting:
                chosen.append((subscription, fitting))
            if _is_enough(chosen):
                queued += _claim_and_put(chosen)
                chosen = []
        return queued + _claim_and_put(chosen), again

    def _fit(
        self, subscription: Subscription, copies: Sequence[_Due], room: Room, read: Texts
    ) -> tuple[list[tuple[int, Message]], int]:
        """The first copies, as many as fit into the next order, and how many were looked at."""
        offer = room.offer(subscription)
        if not copies or not offer:
            return [], 0
        messages = read.get(message_id for _, _, message_id in copies)
        gone = [copy_id for _, copy_id, message_id in copies if message_id not in messages]
        if gone:
            _poison(subscription, gone)
        there = [
            (copy_id, messages[message_id])
            for _, copy_id, message_id in copies
            if message_id in messages
        ]
        if not there:
            return [], len(gone)
        sizes = [message.size for _, message in there]
        self._sizes[subscription.id] = sum(sizes) / len(sizes)
        fitting = there[: orders.fitting(sizes, offer.items, offer.bytes)]
        room.take(subscription)
        return fitting, len(gone) + len(fitting)


def _reclaimable(backlogs: Sequence[Backlog]) -> list[Backlog]:
    """Without the expired leases while old results wait for the marker."""
    if not any(_Status.QUEUED in backlog.statuses for backlog in backlogs):
        return list(backlogs)
    if jobs.oldest_seconds(orders.MARKER_QUEUE) < MARKER_LAG_SECONDS:
        return list(backlogs)
    pending = int(_Status.PENDING)
    return [Backlog(b.subscription, b.first, [pending]) for b in backlogs if pending in b.statuses]


def _choose(asked: Sequence[Backlog], limits: dict[int, int]) -> dict[int, list[_Due]]:
    """The first due copies of each subscription, in one statement.

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
            parameters += [
                status, backlog.subscription.id, limits[backlog.subscription.id]
            ]  # fmt: skip
    if not parts:
        return {}
    found: dict[int, list[_Due]] = {}
    rows = sql.retrying(lambda: _select(" UNION ALL ".join(parts), parameters))
    for subscription_id, next_at, copy_id, message_id in rows:
        found.setdefault(subscription_id, []).append((next_at, copy_id, message_id))
    for copies in found.values():
        copies.sort()
    return found


def _select(statement: str, parameters: Sequence[int]) -> Sequence[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def _poison(subscription: Subscription, copy_ids: Sequence[int]) -> None:
    """Their message is gone: nothing can be sent, and nobody must wait for it."""
    rows = ReceiveMsg.objects.filter(id__in=copy_ids, status__in=_WAITING, next_at__lte=Now())
    changed = claims.update_by_key(
        rows,
        {"status": _Status.POISON, "error": "message is gone", "claimed_by": "",
         "updated_at": Now()},
    )  # fmt: skip
    if changed:
        alerts.raise_alert(
            "notify.poison",
            f"The message of delivery {copy_ids[0]} is gone",
            f"{changed} deliveries of subscription {subscription.id} cannot be sent.",
            key=f"notify.gone:{subscription.id}",
        )


# -- claim and put -------------------------------------------------------------------------------
_Chosen = Sequence[tuple[Subscription, Sequence[tuple[int, Message]]]]


def _is_enough(chosen: _Chosen) -> bool:
    copies = sum(len(items) for _, items in chosen)
    return copies >= STEP_COPIES or (
        sum(message.size for _, items in chosen for _, message in items) >= enqueue.STEP_BYTES
    )


def _claim_and_put(chosen: _Chosen) -> int:
    """Claim the copies and put an order of each subscription's; how many copies."""
    ids = [copy_id for _, items in chosen for copy_id, _ in items]
    if not ids:
        return 0
    claim = claims.claim_ids(
        ReceiveMsg.objects.filter(status__in=_WAITING), ids,
        lease=settings.NOTIFY_LEASE_SECONDS, until="next_at", read=("send_times",),
        set={"status": _Status.QUEUED, "updated_at": Now()},
    )  # fmt: skip
    lease_until = claim.lease_until.timestamp()
    won = claim.read
    made = [
        enqueue.Claimed(
            subscription, claim.token, lease_until,
            [(copy, won[copy][0] + 1, message) for copy, message in items if copy in won],
        )
        for subscription, items in chosen
    ]  # fmt: skip
    enqueue.put(made)
    return len(won)
