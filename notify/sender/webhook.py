"""Make a request of an item (Standard Webhooks, in the subscription's format), and a Result of the
answer."""

import socket
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from msgplatform.core.http import engine as http
from msgplatform.core.http.response import charset, kept_headers, readable, retry_after
from notify import orders
from notify.directory import Subscription
from notify.orders import ENCRYPTED, MAX_RESPONSE_BODY, MAX_RESPONSE_HEADERS, Item, Order, Result
from notify.sender.in_flight import ClaimedOrder
from notify.subscriptions import limits, signing
from notify.subscriptions.formats import CONTENT_TYPES, CloudEvents

_MAX_RETRY_AFTER = 24 * 3600.0
Entry = tuple[ClaimedOrder, Item]


class Envelope:
    """The common part of all requests of a subscription, made once."""

    def __init__(self, subscription: Subscription) -> None:
        prefix = subscription.header_prefix
        self._cloud_events = CloudEvents.of(subscription.format, subscription.source)
        self.content_type: str = CONTENT_TYPES[subscription.format]
        self._outline = http.outline(
            subscription.url,
            [("content-type", self.content_type), *subscription.headers],
            subscription.timeout,
            networks=subscription.networks,
            own=limits.own_headers(prefix),
            own_host=subscription.own_host,
        )
        self._sign = signing.signer(subscription.keys)
        self._id, self._timestamp = f"{prefix}-id: ", f"{prefix}-timestamp: "
        # A header of the consumer's own settings goes before the trace.
        self._passes_trace = all(name.lower() != "traceparent" for name, _ in subscription.headers)
        self._signature, self._key = f"{prefix}-signature: ", f"{prefix}-idempotency-key: "

    def requests(self, entries: Iterable[Entry], timestamp: int) -> list[http.Request]:
        """A signed request for each entry at `timestamp` (unix seconds). The request's tag is the
        entry."""
        stamp = f"{self._timestamp}{timestamp}"
        outline, sign, cloud_events = self._outline, self._sign, self._cloud_events
        requests = []
        for entry in entries:
            item = entry[1]
            number, attributes = str(item.msg_id), ()  # type: str, tuple[str, ...]
            if cloud_events:
                body, attributes = cloud_events.render(number, item.body)
            else:
                body = item.body.encode()
            signature = sign(f"{number}.{timestamp}.".encode() + body)
            lines: tuple[str, ...] = (
                self._id + number,
                stamp,
                self._signature + signature,
                *attributes,
            )
            if item.key:
                lines += (self._key + item.key,)
            if item.trace and self._passes_trace:
                lines += (f"traceparent: {item.trace}",)
            requests.append(outline.request(body, lines, entry))
        return requests


# Cached by all settings of the subscription: a change makes another envelope.
envelope = lru_cache(maxsize=4096)(Envelope)


def opened(item: Item) -> Item:
    """The item with a decrypted body. Raises Undecryptable."""
    body = orders.open_body(item.body)
    return item if body is item.body else msgspec.structs.replace(item, body=body)


def unsent_result(order: Order, item: Item) -> Result:
    """A result that gives the delivery back without an attempt."""
    return Result(item.id, order.subscription, order.claim, item.attempt, "unsent", at=item.due)


def unreadable_result(order: Order, item: Item, why: str) -> Result:
    """The result `unsent` of an item whose payload's key is missing on this machine. The delivery
    waits for the key, and no attempt is counted, because the consumer is not to blame."""
    return Result(
        item.id, order.subscription, order.claim, item.attempt, "unsent", error=ENCRYPTED,
        at=item.due, detail=f"{socket.gethostname()}: {why}", event_type=item.event_type,
    )  # fmt: skip


def answer(
    order: Order,
    item: Item,
    response: http.Response,
    is_delivered: bool,
    now: float,
    is_kept: bool = True,
) -> Result:
    """The result of an answer at `now` (unix seconds), cut to the log's bounds. Without `is_kept`
    the result has no headers and no body of the answer."""
    seconds = response.seconds
    # Positional arguments are faster, and this runs for every message.
    return Result(
        item.id,
        order.subscription,
        order.claim,
        item.attempt,
        "delivered" if is_delivered else "failed",
        response.status,
        response.error,
        int(seconds * 1e4 + 0.5) / 1e4,  # round() takes six times as long
        0.0 if is_delivered else min(retry_after(response.headers, now), _MAX_RETRY_AFTER),
        int((now - seconds) * 1e3 + 0.5) / 1e3,
        response.detail,
        kept_headers(response.headers, MAX_RESPONSE_HEADERS) if is_kept else "",
        body_text(response, MAX_RESPONSE_BODY) if is_kept and response.body else "",
        item.event_type,
        item.trace,
    )


def body_text(response: http.Response, max_bytes: int) -> str:
    """The first `max_bytes` of the body as text, decompressed if needed."""
    return text(readable(response, max_bytes), max_bytes, charset(response.headers))


def text(raw: bytes, max_bytes: int, encoding: str = "utf-8") -> str:
    """The first `max_bytes` as text that any database accepts. Invalid bytes and NUL become
    U+FFFD."""
    return raw[:max_bytes].decode(encoding, "replace").replace("\0", "\ufffd")
