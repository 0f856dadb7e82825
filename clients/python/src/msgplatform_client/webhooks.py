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
    signature does not cover it. `source` is that of a CloudEvent, '' in the standard format.
    """

    id: str
    type: str
    timestamp: datetime
    data: Any
    idempotency_key: str
    source: str = ""


def verify(
    headers: Mapping[str, str],
    body: bytes | str,
    secret: str,
    *,
    prefix: str = "webhook",
    is_binary: bool = False,
) -> Delivery:
    """The delivery, if its signature fits the secret (`whsec_…`) and is at most five minutes old.

    `body` is the request's body as it came, before anything parses it: in the standard format, or
    as a structured CloudEvent. `is_binary` is for subscriptions with the format of binary
    CloudEvents: type, source and time are in headers then, which the signature does not cover.
    `prefix` is the beginning of the headers' names, if another one was set for the consumer.

    Raises WebhookVerificationError: answer it with 401. A genuine body in another format raises it,
    too.
    """
    prefix = prefix.lower()
    lower = {name.lower(): value for name, value in headers.items()}
    signed = {f"webhook-{name}": lower.get(f"{prefix}-{name}", "") for name in _SIGNED_HEADERS}
    webhook = Webhook(secret)
    try:
        webhook.verify(body, signed, json_parse=False)
    except ValueError as error:  # a signature or a body that is none
        raise WebhookVerificationError("The signature cannot be read") from error
    try:
        event = json.loads(body)
        if is_binary:
            type, at, source = (lower[f"ce-{name}"] for name in ("type", "time", "source"))
            data = event
        else:
            is_standard = "specversion" not in event
            type, data = event["type"], event["data"]
            at = event["timestamp" if is_standard else "time"]
            source = "" if is_standard else event["source"]
        moment = datetime.fromisoformat(at)
    except (ValueError, KeyError, TypeError) as error:
        words = "genuine, and not in this format: binary CloudEvents need is_binary"
        raise WebhookVerificationError(f"The delivery is {words}") from error
    key = lower.get(f"{prefix}-idempotency-key", "")
    return Delivery(signed["webhook-id"], type, moment, data, key, source)
