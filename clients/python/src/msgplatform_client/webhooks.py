"""The receiver's side: is this delivery genuine, and what does it say?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

__all__ = ["Delivery", "WebhookVerificationError", "verify"]

_SIGNED_HEADERS = ("id", "timestamp", "signature")


@dataclass(frozen=True)
class Delivery:
    """An event as it was delivered. `id` is the same in every repeat: drop what you have seen.

    `idempotency_key` is the key of the system that published it; '' when there is none. The
    signature does not cover it.
    """

    id: str
    type: str
    timestamp: datetime
    data: Any
    idempotency_key: str


def verify(
    headers: Mapping[str, str], body: bytes | str, secret: str, *, prefix: str = "webhook"
) -> Delivery:
    """The delivery, if its signature fits the secret (`whsec_…`) and is at most five minutes old.

    `body` is the request's body as it came, before anything parses it. `prefix` is the beginning of
    the headers' names, if another one was set for the consumer.

    Raises WebhookVerificationError: answer it with 401.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    signed = {f"webhook-{name}": lower.get(f"{prefix}-{name}", "") for name in _SIGNED_HEADERS}
    webhook = Webhook(secret)
    try:
        webhook.verify(body, signed, json_parse=False)
    except ValueError as error:  # a signature or a body that is none
        raise WebhookVerificationError("The signature cannot be read") from error
    event = json.loads(body)
    return Delivery(
        id=signed["webhook-id"],
        type=event["type"],
        timestamp=datetime.fromisoformat(event["timestamp"]),
        data=event["data"],
        idempotency_key=lower.get(f"{prefix}-idempotency-key", ""),
    )
