"""Consumers, subscriptions, event types and idempotency keys move with a system to another cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import Q

from msgplatform.core.flows.moving import MovedTable, Moving
from msgplatform.core.intake.moved_keys import TableKeys
from notify import signals
from notify.models import BizReceive, EventType, IdempotencyKey, Receive

_Status = BizReceive.Status


def _pause(row: Any) -> bool:
    # Messages of the old cell come first: those of the new one are held until it has drained.
    if row.status not in (_Status.NORMAL, _Status.SKIPPING):
        return False
    row.status = _Status.PAUSED
    return True


def _resume(rows: Sequence[Any]) -> None:
    paused = BizReceive.objects.filter(pk__in=[row.pk for row in rows], status=_Status.PAUSED)
    if paused.update(status=_Status.NORMAL, **BizReceive.RESUMED):
        signals.MAKER.send()


MOVING = Moving(
    tables=(
        MovedTable(
            model=Receive,
            rows=lambda biz: Receive.objects.filter(bizreceive__biz_id=biz).order_by("id"),
            identity=("name",),
            is_shared=True,  # by several systems
        ),
        MovedTable(
            model=BizReceive,
            rows=lambda biz: BizReceive.objects.filter(biz_id=biz).order_by("id"),
            identity=("biz", "receive"),
            left_out=frozenset({"failing_since", "failures", "disabled_reason", "disabled_said"}),
            hold=_pause,
            resume=_resume,
        ),
        MovedTable(
            model=EventType,
            # Entries without a system too: its events may have to match them.
            rows=lambda biz: EventType.objects.filter(Q(biz_id=biz) | Q(biz=None)).order_by("id"),
            identity=("biz", "name"),
            is_shared=True,
            left_out=frozenset({"owner"}),
        ),
    ),
    keys=(TableKeys(IdempotencyKey),),
)
