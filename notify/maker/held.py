"""What becomes of waiting deliveries when somebody resumes or discards their subscription.

The operator only sets the subscription's status; the maker moves the deliveries in pages. So a
million of them make no long request, and the next turn goes on where a killed maker stopped.

    paused, disabled   held stay held
    normal             held → pending
    skipping           held → skipped; when none is left, the subscription becomes normal
    discarded          held, pending, queued (after the lease) → skipped
"""

from __future__ import annotations

from functools import partial

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from msgplatform.core.data import claims, transactions
from msgplatform.core.failpoints import failpoint
from notify import due
from notify.models import BizReceive, ReceiveMsg

PAGE = 500
_Status = BizReceive.Status
_Held, _Pending = ReceiveMsg.Status.HELD, ReceiveMsg.Status.PENDING
_Skipped = ReceiveMsg.Status.SKIPPED


def settle() -> int:
    """Move up to PAGE deliveries of each subscription whose status asks for it; how many."""
    holding_status = (_Status.PAUSED, _Status.DISABLED)
    moving = BizReceive.objects.exclude(status__in=holding_status)
    statuses = dict(moving.values_list("id", "status"))
    # A status may change after this; each page asks for it once more, under lock.
    holding = _having(_Held)
    failpoint("maker_before_held")
    moved = sum(_move(pk, statuses[pk], _Held) for pk in holding if pk in statuses)
    if discarded := [pk for pk, status in statuses.items() if status == _Status.DISCARDED]:
        for status in (_Pending, ReceiveMsg.Status.QUEUED):
            waiting = _having(status)
            moved += sum(_move(pk, _Status.DISCARDED, status) for pk in discarded if pk in waiting)
    skipping = [pk for pk, status in statuses.items() if status == _Status.SKIPPING]
    for pk in skipping:
        if pk not in holding:
            transactions.retrying(partial(_finish_skipping, pk))
    return moved


def _having(status: int) -> set[int]:
    """Subscriptions with deliveries in this status."""
    rows = BizReceive.objects.values_list("id", due.first(status))
    return {subscription for subscription, first in rows if first is not None}


def _move(subscription: int, said: int, status: int) -> int:
    """Move a page of the deliveries in `status`, as the subscription's own status `said`; how
    many."""
    skip = said in (_Status.SKIPPING, _Status.DISCARDED)
    values = {"status": _Skipped if skip else _Pending, "updated_at": Now(), "next_at": Now()}

    def once() -> int:
        with transaction.atomic():
            page = list(_deliveries(subscription, status).values_list("id", flat=True)[:PAGE])
            rows = ReceiveMsg.objects.filter(id__in=page, status=status)
            moved = claims.update_by_key(rows, values) if page else 0
            # Deliveries are locked before their subscription, in the order of a marker's locks.
            if moved and not _still_says(subscription, said):
                transaction.set_rollback(True)
                return 0
            return moved

    return transactions.retrying(once)


def _still_says(subscription: int, status: int) -> bool:
    """Asked under the row's lock: this process may have been frozen since it read the status, and
    an operator may have changed it meanwhile."""
    rows = BizReceive.objects.select_for_update().filter(pk=subscription, status=status)
    return rows.values_list("pk", flat=True).first() is not None


def _deliveries(subscription: int, status: int) -> QuerySet[ReceiveMsg]:
    deliveries = ReceiveMsg.objects.filter(status=status, biz_receive_id=subscription)
    if status == ReceiveMsg.Status.QUEUED:
        deliveries = deliveries.filter(next_at__lte=Now())  # before that its result may come
    return deliveries.order_by("next_at")


def _finish_skipping(subscription: int) -> None:
    """A subscription that has skipped everything is a normal one again."""
    with transaction.atomic():
        is_done = not _deliveries(subscription, _Held).exists()
        if is_done and _still_says(subscription, _Status.SKIPPING):
            BizReceive.objects.filter(pk=subscription).update(status=_Status.NORMAL)
