"""The spans of attempts in flight, for traced messages.

The consumer gets the attempt's `traceparent`, so that the consumer's spans are its children.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from msgplatform.core.tracing import spans
from msgplatform.core.tracing.context import is_on, parse
from notify.directory import Subscription
from notify.orders import Item, Result
from notify.sender.webhook import Entry

if TYPE_CHECKING:
    from msgplatform.core.tracing.spans import Span


class AttemptSpans:
    """The open spans, for the sending thread. The sender's window bounds their number."""

    def __init__(self) -> None:
        self._spans: dict[tuple[str, int], Span] = {}  # (claim, delivery) → span
        self._is_on = is_on()

    def begin(self, entries: list[Entry], subscription: Subscription) -> list[Entry]:
        """The entries, with the attempt's `traceparent` instead of the message's."""
        if not self._is_on or not any(item.trace for _, item in entries):
            return entries
        return [
            (order, self._begin(order.order.claim, item, subscription) if item.trace else item)
            for order, item in entries
        ]

    def _begin(self, claim: str, item: Item, subscription: Subscription) -> Item:
        span = spans.start(
            "notify deliver", parse(item.trace), kind="client", http_method="POST",
            message_id=str(item.msg_id), delivery=str(item.id), attempt=item.attempt,
            subscription=subscription.id,
        )  # fmt: skip
        self._spans[claim, item.id] = span
        return msgspec.structs.replace(item, trace=spans.context_of(span).text)

    def end(self, result: Result) -> None:
        """End the span of an attempt that was answered, or failed."""
        span = self._spans.pop((result.claim, result.id), None)
        if span is None:
            return
        is_delivered = result.outcome == "delivered"
        error = "" if is_delivered else result.error or f"HTTP {result.http_status}"
        spans.end(span, error=error, http_status=result.http_status, outcome=result.outcome)
