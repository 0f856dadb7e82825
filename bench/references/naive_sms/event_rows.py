"""An event in Notify's tables, row by row: message and delivery before the POST, outcome after.

So it would survive, and somebody could see it and send it again.
"""

import time
from datetime import UTC, datetime


def write(subscription, message, body):
    """The delivery that is sent now, committed."""
    from django.db import transaction

    from notify.models import BizMsg, ReceiveMsg

    now = datetime.now(UTC)
    row = {"id": int(message), "biz_id": subscription.biz_id, "created_at": now}
    with transaction.atomic():
        BizMsg(**row, event_type="sms.report", payload=body.encode()).save(force_insert=True)
        copy = ReceiveMsg(
            **row, msg_id=int(message), biz_receive_id=subscription.pk,
            status=ReceiveMsg.Status.QUEUED, next_at=now, updated_at=now,
        )  # fmt: skip
        copy.save(force_insert=True)
    return copy


def mark(copy, began):
    """Mark it delivered, by an attempt that `began` at this moment (`time.time()`)."""
    from django.db import transaction

    from notify.models import Attempt

    copy.status, copy.http_status = copy.Status.DELIVERED, 200
    copy.send_times, copy.updated_at = copy.send_times + 1, datetime.now(UTC)
    with transaction.atomic():
        copy.save(update_fields=["status", "http_status", "send_times", "updated_at"])
        Attempt(
            id=copy.pk, copy=copy, claim="c" * 32, number=1, at=datetime.fromtimestamp(began, UTC),
            seconds=time.time() - began, http_status=200,
        ).save(force_insert=True)  # fmt: skip
