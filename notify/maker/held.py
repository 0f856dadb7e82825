"""What becomes of waiting copies when their subscription is resumed or discarded.

The operator only sets the subscription's status; the maker moves the copies in pages, so that a
million copies are no long request, and a killed maker's work is taken up by the next turn.
"""

from __future__ import annotations

from django.db.models.functions import Now

from msgplatform.core.data import claims, sql
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
    moved = sum(_settle_held(pk, statuses[pk]) for pk in holding if pk in statuses)
    if discarded := [pk for pk, status in statuses.items() if status == _Status.DISCARDED]:
        for status in (_Pending, ReceiveMsg.Status.QUEUED):
            waiting = _having(status)
            moved += sum(_move(pk, status, _Skipped) for pk in discarded if pk in waiting)
    _finish_skipping(holding)
    return moved


def _having(status: int) -> set[int]:
    """Subscriptions with copies in this status."""
    rows = BizReceive.objects.values_list("id", due.first(status))
    return {subscription for subscription, first in rows if first is not None}


def _settle_held(subscription: int, status: int) -> int:
    skip = status in (_Status.SKIPPING, _Status.DISCARDED)
    return _move(subscription, _Held, _Skipped if skip else _Pending)


def _move(subscription: int, status: int, to: int) -> int:
    copies = ReceiveMsg.objects.filter(status=status, biz_receive_id=subscription)
    if status == ReceiveMsg.Status.QUEUED:
        copies = copies.filter(next_at__lte=Now())  # before that its result may come
    page = list(copies.order_by("next_at").values_list("id", flat=True)[:PAGE])
    rows = ReceiveMsg.objects.filter(id__in=page, status=status)
    values = {"status": to, "updated_at": Now(), "next_at": Now()}
    return sql.retrying(lambda: claims.update_by_key(rows, values))


def _finish_skipping(holding: set[int]) -> None:
    """A subscription that has skipped everything is a normal one again."""
    done = BizReceive.objects.filter(status=_Status.SKIPPING).exclude(id__in=holding)
    if done.exists():
        done.update(status=_Status.NORMAL)
