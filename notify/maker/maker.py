"""Maker: splits accepted messages (`splitter.py`) and queues due deliveries (`dispatcher.py`).

A delivery is claimed and committed before it is queued. A maker killed in between leaves claimed
deliveries, which are queued again when their lease is over.

The maker also moves the deliveries of subscriptions whose status has changed. It moves pages, so
that a million deliveries need no long request, and a killed maker's work is continued.

    paused, disabled   pending, queued (after the lease) → held
    normal             held → pending
    skipping           held → skipped; when none is left, the subscription becomes normal
    discarded          held, pending, queued (after the lease) → skipped
"""

import gc
import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from django.db import OperationalError, connection, transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Greatest, Now

from msgplatform.core import flows
from msgplatform.core.connections import RedisError
from msgplatform.core.daemons.daemon import Worker
from msgplatform.core.daemons.timer import Every, Gather, work_on_some
from msgplatform.core.data import claims, transactions
from msgplatform.core.failpoints import failpoint
from msgplatform.core.queues import jobs, recovery
from notify import orders, signals
from notify.directory import Subscriptions
from notify.maker import expiry
from notify.maker.capacity import Capacity
from notify.maker.dispatcher import Backlog, Dispatcher
from notify.maker.enqueue import Texts
from notify.maker.splitter import BATCH, Splitter
from notify.models import BizReceive, ReceiveMsg, with_deliveries
from notify.monitor.counters import CatalogueSubjects

RECOVER_EVERY_SECONDS = 10.0
SETTLE_EVERY_SECONDS = 2.0
EXPIRE_UNFETCHED_EVERY_SECONDS = 30.0
# Under load a turn waits for more messages, because it needs ten statements and a commit however
# many there are. The pause is in seconds for each message of the last turn (20 ms at 2,000/s).
_GATHER_PER_MESSAGE, GATHER_SECONDS = 0.0002, 0.05
_LONG_SECONDS = 0.05  # after a longer queueing the messages to split are counted again
# Deliveries of one subscription that are moved in one transaction.
SETTLE_PAGE = 500
# Seconds of moving in one turn, plus at most a page. When thousands of subscriptions of a dead host
# are disabled at once, other deliveries must not wait.
_SETTLE_SECONDS = 0.15
_Status, _Delivery = BizReceive.Status, ReceiveMsg.Status


class Maker(Worker):
    role = "maker"
    wake_signal = signals.MAKER

    def __init__(self) -> None:
        super().__init__()
        self.subscriptions = Subscriptions()
        self._event_types = CatalogueSubjects()
        self.dispatcher = Dispatcher(self.subscriptions)
        self.splitter = Splitter(self.subscriptions, self._event_types, self.dispatcher.expect)
        self._texts = Texts()
        self._next_recover = Every(RECOVER_EVERY_SECONDS)
        self._next_settle = Every(SETTLE_EVERY_SECONDS)
        self._next_expire = Every(SETTLE_EVERY_SECONDS)
        self._next_expire_unfetched = Every(EXPIRE_UNFETCHED_EVERY_SECONDS)
        self.continuity = expiry.Continuity()
        self._is_closed = False  # no order could be given in the last look at the capacity
        self._is_refused = False  # Redis took no order the last time
        self._gather = Gather(BATCH, GATHER_SECONDS, per_item=_GATHER_PER_MESSAGE)

    def start(self) -> None:
        # Loaded modules are never freed, so the garbage collector need not look at them.
        gc.collect()
        gc.freeze()

    def turn(self) -> bool:
        self.continuity.look_for_gap()
        self.subscriptions.refresh()
        if self._next_recover.take():
            # Clean up after killed senders and markers. A result is the only copy of a
            # subscriber's answer and is put back; an order can be made again.
            recovery.recover(is_only_copy=flows.has_only_copies)
        moved_count = self.settle_held() + self._expire_unfetched()
        work_count = self._work(self.splitter.waiting())
        if not self._is_closed:
            self.continuity.end_turn()
        if pause := self._gather.note_batch(work_count):
            self.stopping.wait(pause)
        return bool(work_count or moved_count)

    def settle_held(self) -> int:
        """Move deliveries of subscriptions whose status has changed; returns the number moved. Runs
        every two seconds, and without a pause while deliveries are moved."""
        if not self._next_settle.is_due:
            return 0
        moved_count = settle()
        if not moved_count:
            self._next_settle.restart()
            return 0
        self.dispatcher.look_at_all()
        if self.subscriptions.listened():  # deliveries for listeners may be due now
            signals.LISTENERS.send()
        return moved_count

    def _expire_unfetched(self) -> int:
        """End deliveries that no listener has fetched for too long; returns the number ended."""
        has_lasted = self.continuity.has_lasted(expiry.MIN_LISTEN_SECONDS)
        if not has_lasted or not self._next_expire_unfetched.is_due:
            return 0
        ended_count = expiry.expire_unfetched(self.subscriptions.listened().values())
        if not ended_count:
            self._next_expire_unfetched.restart()
        return ended_count

    def _expire(self, backlogs: Iterable[Backlog], capacity: Capacity) -> int:
        """End deliveries behind open breakers; returns the number ended. Runs every two seconds,
        and without a pause while deliveries end."""
        continuity = self.continuity
        continuity.look_for_gap()  # again: the process may have been frozen in this turn
        continuity.note_open(pk for pk, state in capacity.live.items() if state.is_open)
        if self._is_closed or not self._next_expire.is_due:
            return 0
        behind_breaker = [
            (backlog.subscription, capacity.live[backlog.subscription.id].open_for)
            for backlog in backlogs
            if continuity.is_long_open(backlog.subscription.id)
        ]
        expired_count = expiry.expire(behind_breaker, self._event_types)
        if not expired_count:
            self._next_expire.restart()
        return expired_count

    def _work(self, unsplit: Mapping[int, int]) -> int:
        """Queue due deliveries, then split, so that older deliveries go first. `unsplit`: system →
        number of messages that wait to be split."""
        self._is_closed = False
        backlogs = self.dispatcher.due()
        if not backlogs and not unsplit:
            return 0
        self._texts.forget()
        began = time.monotonic()
        try:
            if self._is_refused:
                jobs.check_writes()  # claims would only be given back
                self._is_refused = False
            capacity = Capacity.read(self.subscriptions.by_queue())
            self._is_closed = capacity.is_closed
            queued_count, behind_ids = self.dispatcher.queue(backlogs, capacity, self._texts)
        except RedisError:
            self._is_refused = True
            if unsplit:  # splitting needs no Redis
                self.heartbeat.done += self.splitter.split(unsplit, None)[0]
            raise
        split_count = direct_count = 0
        if time.monotonic() - began > _LONG_SECONDS:
            unsplit = self.splitter.waiting()  # messages that came meanwhile need not wait a turn
        if unsplit:
            split_count, direct_count = self.splitter.split(unsplit, capacity, behind_ids)
        expired_count = self._expire(backlogs, capacity)
        self.heartbeat.done += split_count + queued_count + direct_count
        return split_count + queued_count + expired_count


# -- deliveries of subscriptions whose status has changed ----------------------------------------
def settle() -> int:
    """Move up to SETTLE_PAGE deliveries of each subscription by its status, until the time is over;
    returns the number moved."""
    statuses = dict(BizReceive.objects.values_list("id", "status"))
    # A status may change after this query, so each page reads it again under lock.
    with_held_ids = _with_deliveries(BizReceive.objects.all(), _Delivery.HELD)
    failpoint("maker_before_held")
    resumed_ids = {pk for pk, status in statuses.items() if status not in BizReceive.HOLDING}
    until = time.monotonic() + _SETTLE_SECONDS
    moved_count = _move_some(with_held_ids & resumed_ids, statuses, _Delivery.HELD, until)
    stopped_ids = {pk for pk, status in statuses.items() if status in BizReceive.STOPPED}
    if stopped_ids:  # few: no other subscription is looked at
        stopped_rows = BizReceive.objects.filter(status__in=BizReceive.STOPPED)
        for waiting in (_Delivery.PENDING, _Delivery.QUEUED):
            waiting_ids = stopped_ids & _with_deliveries(stopped_rows, waiting)
            if waiting == _Delivery.QUEUED and waiting_ids and _may_have_arrived():
                break
            moved_count += _move_some(waiting_ids, statuses, waiting, until)
    for pk, status in statuses.items():
        if status == _Status.SKIPPING and pk not in with_held_ids:
            transactions.retrying(partial(_finish_skipping, pk))
    return moved_count


def _with_deliveries(subscriptions: QuerySet[BizReceive], status: int) -> set[int]:
    """Ids of the subscriptions that have deliveries in this status."""
    return set(with_deliveries(subscriptions, [status]).values_list("id", flat=True))


def _may_have_arrived() -> bool:
    """True if results of queued deliveries may wait for the marker."""
    try:
        return orders.are_results_late()
    except RedisError:
        return True


def _move_some(ids: Iterable[int], statuses: Mapping[int, int], status: int, until: float) -> int:
    """Move a page of each of these subscriptions until `until`, at least one page; returns the
    number of deliveries."""
    return work_on_some(lambda pk: _move(pk, statuses[pk], status), sorted(ids), until)


def _move(subscription: int, subscription_status: int, status: int) -> int:
    """Move a page of the deliveries in `status` as `subscription_status` demands; returns their
    number."""
    values = {**_values(subscription_status), "updated_at": Now()}

    def once() -> int:
        with transaction.atomic():
            page = list(
                _deliveries(subscription, status).values_list("id", flat=True)[:SETTLE_PAGE]
            )
            rows = _deliveries(subscription, status).filter(id__in=page)
            count = claims.update_by_key(rows, values) if page else 0
            # Deliveries are locked before their subscription, in the order of a marker's locks.
            if count and not _has_status(subscription, subscription_status):
                transaction.set_rollback(True)
                return 0
            return count

    return transactions.retrying(once)


def _values(subscription_status: int) -> dict[str, Any]:
    """The new values of moved deliveries whose subscription has this status."""
    if subscription_status in BizReceive.HOLDING:  # `next_at` stays: a retry keeps its time
        return {"status": _Delivery.HELD, "claimed_by": ""}
    if subscription_status in (_Status.SKIPPING, _Status.DISCARDED):
        return {"status": _Delivery.SKIPPED, "next_at": Now()}
    # A pause does not bring a retry forward.
    return {"status": _Delivery.PENDING, "next_at": Greatest(F("next_at"), Now())}


def _has_status(subscription: int, status: int) -> bool:
    """True if the subscription has this status; locks the row. This process may have been frozen
    since it read the status, and an operator may have changed the status meanwhile."""
    rows = BizReceive.objects.select_for_update().filter(pk=subscription, status=status)
    return rows.values_list("pk", flat=True).first() is not None


def _deliveries(subscription: int, status: int) -> QuerySet[ReceiveMsg]:
    deliveries = ReceiveMsg.objects.filter(status=status, biz_receive_id=subscription)
    if status == _Delivery.QUEUED:
        deliveries = deliveries.filter(next_at__lte=Now())  # before its end a result may come
    return deliveries.order_by("next_at")


def _finish_skipping(subscription: int) -> None:
    """Set a subscription that has skipped everything to normal."""
    can_refuse = connection.features.has_select_for_update_nowait
    with transaction.atomic():
        # Lock: another maker may have inserted deliveries as held, and not committed them.
        held_rows = _deliveries(subscription, _Delivery.HELD).select_for_update(nowait=can_refuse)
        try:
            is_done = held_rows.values_list("id", flat=True).first() is None
        except OperationalError as error:
            if not transactions.is_of_lock(error):
                raise
            return  # the next look decides
        if is_done and _has_status(subscription, _Status.SKIPPING):
            BizReceive.objects.filter(pk=subscription).update(status=_Status.NORMAL)
