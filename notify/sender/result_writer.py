"""The writing of a sender about its attempts: results, which a thread of its own puts on the marker
queue before their orders are forgotten; and the spans of traced messages.

The consumer gets the attempt's `traceparent`, so that the consumer's spans are its children."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from msgplatform.core import logging
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.errors import UNAVAILABLE
from msgplatform.core.failpoints import failpoint
from msgplatform.core.queues import jobs
from msgplatform.core.tracing import spans
from msgplatform.core.tracing.context import is_on, parse
from notify import orders
from notify.directory import Subscription
from notify.orders import Item, Result
from notify.sender.in_flight import ClaimedOrder
from notify.sender.webhook import Entry

if TYPE_CHECKING:
    from msgplatform.core.tracing.spans import Span

log = logging.get(__name__)

BATCH = 500
# Seconds that a first result waits for others, because an RQ job costs about 1.4 ms.
GATHER_SECONDS = 0.05
# Without results the thread sleeps until it is woken. A lost wake costs at most this time.
_IDLE_SECONDS = 5.0
# Results in memory while Redis is unavailable. Beyond this number the sender stops sending.
MAX_WAITING = 20_000
_JOIN_SECONDS = 10.0

OrderResult = tuple[ClaimedOrder, Result]


class ResultWriter:
    """Writes results in batches. An order is forgotten after its last result is in Redis."""

    def __init__(self) -> None:
        # Filled by the sending thread, emptied by this thread. A deque with one wake for a batch,
        # because a queue would wake this thread for every result.
        self._entries: deque[OrderResult] = deque()
        self._batch: list[OrderResult] = []  # this thread's own, until it is written
        self._is_idle = False  # written by this thread: the next result must wake it
        self._loop = ThreadLoop("result-writer", self._write, last=self._write_all)

    def start(self) -> None:
        self._loop.start()

    def stop(self) -> None:
        """Write the remaining results, then end, in bounded time. If Redis is unavailable, the
        deliveries are queued again when their leases end."""
        self._loop.stop(_JOIN_SECONDS)

    @property
    def has_capacity(self) -> bool:
        return len(self._entries) < MAX_WAITING

    def put(self, order: ClaimedOrder, result: Result) -> None:
        self.put_all([(order, result)])

    def put_all(self, entries: Sequence[OrderResult]) -> None:
        self._entries.extend(entries)
        if self._is_idle or len(self._entries) >= BATCH:
            self._loop.wake()

    # -- the thread ------------------------------------------------------------------------------
    def _write(self) -> float:
        """Write up to BATCH results. After an error the next call writes the same results."""
        if self._is_idle and self._entries:
            self._is_idle = False
            return GATHER_SECONDS  # others follow the first
        while self._entries and len(self._batch) < BATCH:
            self._batch.append(self._entries.popleft())
        if self._batch:
            failpoint("sender_before_results")
            results = [result for _, result in self._batch]
            try:
                jobs.put(orders.MARKER_QUEUE, [results], ttl=None)
            except ValueError:
                # JSON cannot carry the text of an answer: no other consumer's result waits for it.
                log.exception("answer_not_written")
                jobs.put(orders.MARKER_QUEUE, [list(map(_encodable, results))], ttl=None)
            failpoint("sender_after_results_before_done")
            entries, self._batch = self._batch, []
            finished_jobs = []
            for order, _ in entries:
                order.open_items -= 1
                if order.open_items == 0:
                    finished_jobs.append(order.claimed)
            try:
                jobs.remove_orders(finished_jobs)
            except UNAVAILABLE as error:
                # The results are stored. `recover()` drops the orders when their claim is over.
                log.warning("orders_not_forgotten", count=len(finished_jobs), why=str(error)[:200])
            return 0.0 if len(self._entries) >= BATCH else GATHER_SECONDS
        self._is_idle = True
        # A result that came just before has not woken this thread.
        return 0.0 if self._entries else _IDLE_SECONDS

    def _write_all(self) -> None:
        while self._batch or self._entries:
            self._write()


def _encodable(result: Result) -> Result:
    """The result, without its answer if JSON cannot carry it."""
    try:
        msgspec.json.encode(result)
    except ValueError:
        return result.without_answer()
    return result


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
