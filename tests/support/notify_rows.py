"""Rows that Notify's tests start from."""

from collections.abc import Sequence

from msgplatform.core.data import sql
from msgplatform.models import Biz
from notify.actions.resend import FAILED, resend_hot
from notify.intake import intake
from notify.models import BizReceive, Receive, ReceiveMsg
from notify.subscriptions import signing


def subscription(
    biz: Biz, name: str = "warehouse", schedule: list[int] | None = None, **fields: object
) -> BizReceive:
    receive, _ = Receive.objects.get_or_create(
        name=name, defaults={"url": f"http://127.0.0.1:9/{name}"}
    )
    return BizReceive.objects.create(
        biz=biz, receive=receive, schedule=schedule if schedule is not None else [60, 60], **fields
    )


def publish(
    biz: Biz, count: int = 1, payload: bytes = b'{"n":1}', event_type: str = "order.paid"
) -> list[int]:
    events = [intake.Event(biz.pk, event_type, payload) for _ in range(count)]
    return [verdict.id for verdict in intake.publish_many(events)]


def resend(delivery_ids: Sequence[int]) -> int:
    """Resend these deliveries, also delivered ones; the number of those that had ended."""
    return resend_hot(delivery_ids, [*FAILED.values(), ReceiveMsg.Status.DELIVERED], sql.now())


def signed_headers(
    keys: Sequence[bytes], message_id: str, timestamp: int, body: bytes = b"{}"
) -> dict[str, str]:
    """The three headers of an attempt at this time, in unix seconds."""
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signing.sign(keys, message_id, timestamp, body),
    }
