"""Events and texts to be handed over, and how they become requests."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from .answers import check_time
from .generated.models.publish_batch_request import PublishBatchRequest
from .generated.models.publish_request import PublishRequest
from .generated.models.send_request import SendRequest
from .generated.types import UNSET

MAX_BATCH_ITEMS = 1000
# The platform's bound is 16 MiB, envelopes included.
MAX_BATCH_BYTES = 12 * 1024 * 1024


def new_key() -> str:
    """An idempotency key for what has no name of its own."""
    return str(uuid.uuid4())


@dataclass(frozen=True)
class Event:
    """An event to be published.

    The `key` names what happened, not the attempt to publish it: `order-7-paid`. Without one the
    event gets a key of its own, so that repeats by the client are no second event; a second `Event`
    would be.
    """

    event_type: str
    payload: Any
    key: str = field(default_factory=new_key)
    channel: str = ""

    def request(self) -> PublishRequest:
        return PublishRequest(
            event_type=self.event_type,
            payload=self.payload,
            channel=self.channel or UNSET,
            idempotency_key=self.key,
        )


def encode(payload: Any) -> bytes:
    """A payload in JSON. Raises TypeError or ValueError for one that cannot be."""
    return json.dumps(payload, ensure_ascii=False, allow_nan=False).encode()


def batches(events: Iterable[Event]) -> Iterator[PublishBatchRequest]:
    """The events in their order, in requests that the platform takes. Raises TypeError or
    ValueError at a payload that cannot be JSON."""
    batch: list[PublishRequest] = []
    batch_bytes = 0
    for event in events:
        event_bytes = len(encode(event.payload))
        if len(batch) == MAX_BATCH_ITEMS or (batch and batch_bytes + event_bytes > MAX_BATCH_BYTES):
            yield PublishBatchRequest(messages=batch)
            batch, batch_bytes = [], 0
        batch.append(event.request())
        batch_bytes += event_bytes
    if batch:
        yield PublishBatchRequest(messages=batch)


def sms_request(
    to: str | list[str], text: str, key: str, reference: str, account: str, at: datetime | None
) -> SendRequest:
    check_time("schedule_at", at)
    return SendRequest(
        to=[to] if isinstance(to, str) else to,
        text=text,
        idempotency_key=key or new_key(),
        reference=reference or UNSET,
        account=account or UNSET,
        schedule_at=at or UNSET,
    )
