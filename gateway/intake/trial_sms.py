"""A test SMS: one text to one number, through the usual intake."""

from collections.abc import Callable

from gateway.intake.accept import accept
from gateway.intake.request import Request
from gateway.models import SmsAccount, SmsGateway
from msgplatform.models import AuditLog


def send(
    account: SmsAccount, gateway: SmsGateway | None, number: str, text: str, reference: str,
    audit: Callable[..., object], key: str = "",
) -> str:  # fmt: skip
    """Returns the message's id; without a gateway it goes over the one that fits the number. The
    reference marks a test: the message's page, search and Reports show it. `key` is its idempotency
    key. `audit` is called once with an action and its target. Raises what intake raises."""
    request = Request(
        biz=account.biz_id,
        to=(number.strip(),),
        text=text,
        account=account.name,
        reference=reference,
        gateway=gateway.pk if gateway else 0,
        idempotency_key=key,
    )
    (verdict,) = accept([request])
    verdict.raise_rejected()
    message = str(verdict.ids[0])
    # The message may have been stored although its first answer was lost.
    if not AuditLog.objects.filter(action="sms_tested", target=message).exists():
        gateway_name = gateway.name if gateway else ""
        audit("sms_tested", message, account=account.name, gateway=gateway_name)
    return message
