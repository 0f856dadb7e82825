"""One request and its answer, as Notify writes them: Standard Webhooks out, a Result back."""

from __future__ import annotations

import time

from msgplatform.core.http import engine as http
from msgplatform.core.http.response_headers import kept_headers, retry_after
from notify import signing
from notify.order_feed import ClaimedOrder
from notify.orders import RESPONSE_BODY_KEPT, RESPONSE_HEADERS_KEPT, Item, Order, Result
from notify.subscriptions import Subscription

_MAX_RETRY_AFTER = 24 * 3600.0


def request(
    subscription: Subscription, order: ClaimedOrder, item: Item, timestamp: int
) -> http.Request:
    """One signed attempt at `timestamp` (unix seconds); its tag is (order, item)."""
    body = item.body.encode()
    return http.Request(
        url=subscription.url,
        body=body,
        headers=[
            ("content-type", "application/json"),
            *signing.headers(
                subscription.keys, str(item.msg_id), timestamp, body, subscription.header_prefix
            ),
            *subscription.headers,
        ],
        timeout=subscription.timeout,
        networks=subscription.networks,
        tag=(order, item),
    )


def _result(order: Order, item: Item, **fields: object) -> Result:
    return Result(
        id=item.id,
        subscription=order.subscription,
        claim=order.claim,
        attempt=item.attempt,
        **fields,  # type: ignore[arg-type]
    )


def unsent(order: Order, item: Item) -> Result:
    """Gives the copy back: nobody tried it."""
    return _result(order, item, outcome="unsent")


def answer(order: Order, item: Item, response: http.Response, delivered: bool) -> Result:
    """What the consumer answered, with as much of the answer as the log keeps."""
    return _result(
        order,
        item,
        outcome="delivered" if delivered else "failed",
        http_status=response.status,
        error=response.error,
        seconds=round(response.seconds, 4),
        retry_after=0.0 if delivered else _retry_after(response),
        at=round(time.time() - response.seconds, 3),
        detail=response.detail,
        response_headers=kept_headers(response.headers, RESPONSE_HEADERS_KEPT),
        response_body=_text(response.body, RESPONSE_BODY_KEPT),
    )


def _text(raw: bytes, kept: int) -> str:
    """As text that any database takes; what is no UTF-8 becomes U+FFFD."""
    return raw[:kept].decode("utf-8", "replace").replace("\0", "\ufffd")


def _retry_after(response: http.Response) -> float:
    return min(retry_after(response.headers, time.time()), _MAX_RETRY_AFTER)
