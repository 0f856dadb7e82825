"""A test SMS: one text to one number, through the usual intake."""

from __future__ import annotations

from gateway.intake.request import Request
from gateway.models import SmsAccount, SmsGateway


def trial_request(
    account: SmsAccount,
    gateway: SmsGateway | None,
    number: str,
    text: str,
    reference: str,
    key: str = "",
) -> Request:
    """The request; without a gateway it goes over the one that fits the number. The reference marks
    a test: the message's page, search and Reports show it. `key` is its idempotency key."""
    return Request(
        biz=account.biz_id,
        to=(number.strip(),),
        text=text,
        account=account.name,
        reference=reference,
        gateway=gateway.pk if gateway else 0,
        idempotency_key=key,
    )
