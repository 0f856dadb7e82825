"""A test send: one signed request to a subscription's consumer, outside of every queue.

The request is sent as a sender would send it (address guard, networks, signature, headers, timeout)
and is not counted. Paused, discarded and disabled subscriptions can be tried too.
"""

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import cast

import msgspec
from django.utils.translation import gettext_noop as _

from msgplatform.core.connections import RedisError
from msgplatform.core.data import ids
from msgplatform.core.errors import InvalidInput, NotNow, Unavailable
from msgplatform.core.http import engine as http
from msgplatform.core.lazy_text import lazy_message
from notify import directory, operations, orders
from notify.models import BizReceive
from notify.sender import webhook
from notify.sender.in_flight import ClaimedOrder
from notify.subscriptions.limits import MASK, MAX_PAYLOAD_BYTES

TEST_EVENT_TYPE = "webhook.test"
BODY_SHOWN = 4096
HEADERS_SHOWN = 4096
# A thread of the web worker waits for the answer, and the API needs these threads. So the number of
# test sends at once is bounded, and their timeout is shorter than a sender's.
AT_ONCE = 3
MAX_SECONDS = 15.0
_slots = threading.BoundedSemaphore(AT_ONCE)
# Seconds beyond the request's deadline, after which the engine is at fault, not the consumer.
_GRACE_SECONDS = 5.0


class Outcome(msgspec.Struct, frozen=True):
    """`status` is 0 without an HTTP answer. `error` and `detail` come from the HTTP engine.
    `sent_headers`: the request's headers, with masked values of the consumer's own headers."""

    message_id: str
    url: str
    sent_headers: str
    sent: str
    status: int
    seconds: float
    address: str
    headers: str
    body: str
    is_body_cut: bool
    error: str
    detail: str
    is_probing: bool = False  # a waiting delivery is tried now, although its breaker was open

    @property
    def is_delivered(self) -> bool:
        """True if the answer was 2xx."""
        return 200 <= self.status < 300


def usual_payload(row: BizReceive) -> str:
    """The default payload of TEST_EVENT_TYPE: JSON."""
    return json.dumps({"test": True, "subscription": str(row.pk)}, separators=(",", ":"))


def try_consumer(
    row: BizReceive, event_type: str, payload: str, audit: Callable[..., object]
) -> Outcome:
    """Call `send` for a person or a program. `audit` is called with an action and its target.
    Raises InvalidInput for a payload that is too long, NotNow for a row that cannot be used, and
    Unavailable while too many other test sends wait."""
    if len(payload.encode()) > MAX_PAYLOAD_BYTES:
        text = _("A payload has %(kib)d KiB at most.")
        raise InvalidInput(lazy_message(text, kib=MAX_PAYLOAD_BYTES // 1024), "payload")
    # The log is written first, so that it has the person even if the process dies.
    audit("subscription_tested", f"{row} #{row.pk}", event_type=event_type)
    try:
        outcome = send(row, event_type, payload)
    except directory.UNUSABLE as error:
        text = _("This subscription cannot be used: %(refused)s")
        raise NotNow(lazy_message(text, refused=(error.args or ("",))[0])) from None
    if outcome.is_delivered:  # deliveries behind the breaker need not wait for its probe
        with suppress(RedisError):
            return msgspec.structs.replace(outcome, is_probing=operations.probe_now(row))
    return outcome


def send(row: BizReceive, event_type: str = TEST_EVENT_TYPE, payload: str = "") -> Outcome:
    """Send one request. `payload` is JSON, by default `usual_payload`. Blocks for at most the
    subscription's timeout, or 15 s. Raises one of directory.UNUSABLE for a row that senders cannot
    use either, and Unavailable while too many other test sends wait."""
    subscription = directory.from_row(row)
    if subscription.is_listened:
        raise ValueError(
            lazy_message("its messages are fetched by a listener, there is no address to test")
        )
    # A new id in the usual form, so that a consumer that detects duplicates accepts the request.
    number = ids.new(ids.bucket(subscription.biz_id, None))
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    body = orders.body(event_type, now, (payload or usual_payload(row)).encode())
    # There is no order: it would only be the request's tag.
    entry = cast(ClaimedOrder, None), orders.Item(0, number, 1, body)
    envelope = webhook.Envelope(subscription)
    (request,) = envelope.requests([entry], int(time.time()))
    request.timeout = min(request.timeout, MAX_SECONDS)
    if not _slots.acquire(blocking=False):
        text = _("Other test sends wait for their answers; try again in a moment.")
        raise Unavailable(lazy_message(text))
    try:
        response = http.exchange(request, _GRACE_SECONDS, body_cap=BODY_SHOWN)
    finally:
        _slots.release()
    if response is None:
        no_answer = 0, b"", b"", request.timeout, "timeout", "No answer came.", ""
        response = http.Response(request, *no_answer)
    body = webhook.body_text(response, BODY_SHOWN)
    own_headers = [f"{name}: {MASK}" for name, _secret in subscription.headers]
    sent_headers = [f"content-type: {envelope.content_type}", *own_headers, *request.lines]
    return Outcome(
        message_id=str(number),
        url=row.receive.url,  # a sandbox's has a token
        sent_headers="\n".join(sent_headers),
        sent=request.body.decode(),
        status=response.status,
        seconds=response.seconds,
        address=response.address,
        headers=webhook.text(response.headers, HEADERS_SHOWN).strip(),
        body=body.strip(),
        is_body_cut=len(body) >= BODY_SHOWN or response.error == "too_large",
        error=response.error,
        detail=response.detail,
    )
