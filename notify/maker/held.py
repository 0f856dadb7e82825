"""What becomes of waiting copies when their subscription is resumed or discarded.

The operator only sets the subscription's status; the maker moves the copies in pages, so that a
million copies are no long request, and a killed maker's work is taken up by the next turn.
"""

from __future__ import annotations

from functools import partial

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from msgplatform.core.data import claims, sql
from msgplatform.core.failpoints import failpoint
from notify.maker import due
from notify.models import BizReceive, ReceiveMsg

PAGE = 500
_Status = BizReceive.Status
_Held, _Pending = ReceiveMsg.Status.HELD, ReceiveMsg.Status.PENDING
_Skipped = ReceiveMsg.Status.SKIPPED


def settle() -> int:
    """Move up to PAGE waiting copies of each subscription whose status says so; how many."""
    holding_status = (_Status.PAUSED, _Status.DISABLED)
    moving = BizReceive.objects.exclude(status__in=holding_status)
    statuses = dict(moving.values_list("id", "status"))
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
            sql.retrying(partial(_finish_skipping, pk))
    return moved


def _having(status: int) -> set[int]:
    """Subscriptions with copies in this status."""
    rows = BizReceive.objects.values_list("id", due.first(status))
    return {subscription for subscription, first in rows if first is not None}


def _move(subscription: int, said: int, status: int) -> int:
    """A page of the copies in a status, as the subscription's own status said; how many."""
    skip = said in (_Status.SKIPPING, _Status.DISCARDED)
    values = {"status": _Skipped if skip else _Pending, "updated_at": Now(), "next_at": Now()}

    def once() -> int:
        with transaction.atomic():
            page = list(_copies(subscription, status).values_list("id", flat=True)[:PAGE])
            rows = ReceiveMsg.objects.filter(id__in=page, status=status)
            moved = claims.update_by_key(rows, values) if page else 0
            # Copies are locked before their subscription, as a marker does.
            if moved and not _still_says(subscription, said):
                transaction.set_rollback(True)
                return 0
            return moved

    return sql.retrying(once)


def _still_says(subscription: int, status: int) -> bool:
    """Asked under the row's lock: this process may have been frozen since it read the status, and
    the operator may have changed it."""
    rows = BizReceive.objects.select_for_update().filter(pk=subscription, status=status)
    return rows.values_list("pk", flat=True).first() is not None


def _copies(subscription: int, status: int) -> QuerySet[ReceiveMsg]:
    copies = ReceiveMsg.objects.filter(status=status, biz_receive_id=subscription)
    if status == ReceiveMsg.Status.QUEUED:
        copies = copies.filter(next_at__lte=Now())  # before that its result may come
    return copies.order_by("next_at")


def _finish_skipping(subscription: int) -> None:
    """A subscription that has skipped everything is a normal one again."""
    with transaction.atomic():
        is_done = not _copies(subscription, _Held).exists()
        if is_done and _still_says(subscription, _Status.SKIPPING):
            BizReceive.objects.filter(pk=subscription).update(status=_Status.NORMAL)
