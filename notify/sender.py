"""Sender: delivers work orders, many subscriptions in one process, none delayed by another.

Three threads, joined by bounded buffers, so that the one that drives libcurl does no other I/O:

    OrderFeed  ──inbox──▶  Sender.turn (libcurl)  ──results──▶  ResultSink
    claims orders          sends, collects answers               writes the marker queue, then
    from Redis                                                   forgets the finished orders
"""

from __future__ import annotations

import time
import uuid
from collections import OrderedDict, deque
from dataclasses import dataclass, field

from msgplatform.core import logging
from msgplatform.core.daemon import Worker
from msgplatform.core.http import engine as http
from notify import signing
from notify.order_feed import ClaimedOrder, OrderFeed
from notify.orders import (
    RESPONSE_BODY_KEPT,
    RESPONSE_HEADERS_KEPT,
    Item,
    Order,
    Result,
)
from notify.result_sink import ResultSink
from notify.subscriptions import Subscription, Subscriptions
from notify.validators import LEASE_MARGIN_SECONDS

log = logging.get(__name__)

_POLL_SECONDS = 0.2
_MAX_RETRY_AFTER = 24 * 3600.0


@dataclass(slots=True)
class Lane:
    """What one subscription has in hand: its orders' items in order, and what is in flight."""

    waiting: deque[tuple[ClaimedOrder, Item]] = field(default_factory=deque)
    in_flight: int = 0


class Sender(Worker):
    role = "sender"

    def __init__(self, window: int = 1024) -> None:
        super().__init__()
        self.name = uuid.uuid4().hex
        self.subscriptions = Subscriptions()
        self.engine = http.engine_from_settings(window=window)
        self.sink = ResultSink()
        self.feed = OrderFeed(self.name, self.subscriptions, wake=self.engine.wake)
        self._lanes: OrderedDict[int, Lane] = OrderedDict()

    def start(self) -> None:
        self.sink.start()
        self.feed.start()

    def turn(self) -> bool:
        """Take in claimed orders, send what the windows allow, collect answers."""
        took = self._take_in()
        sent = self._fill_windows()
        responses = self.engine.poll(0.0 if took or sent else _POLL_SECONDS)
        for response in responses:
            self._answered(response)
        self._drop_empty_lanes()
        self.heartbeat.done += len(responses)
        # poll() has waited already; an idle engine must not wait a second time in the loop.
        return True

    def drain(self, deadline: float) -> None:
        """Finish what is in flight; give back, unsent, what has not been started."""
        self.feed.stop()
        self._take_in()
        for lane in self._lanes.values():
            while lane.waiting:
                order, item = lane.waiting.popleft()
                self._give_back(order, item)
        while self.engine.in_flight and time.monotonic() < deadline:
            for response in self.engine.poll(_POLL_SECONDS):
                self._answered(response)

    def stop(self) -> None:
        self.feed.stop()
        self.sink.stop()
        self.engine.close()
        self.feed.disown()

    # -- in --------------------------------------------------------------------------------------
    def _take_in(self) -> int:
        claimed = self.feed.take()
        for order in claimed:
            lane = self._lanes.setdefault(order.order.subscription, Lane())
            lane.waiting.extend((order, item) for item in order.order.items)
        return len(claimed)

    def _fill_windows(self) -> int:
        """One message a subscription in turn, so that a long queue does not starve a short one."""
        if not self.sink.has_room:
            return 0
        sent = 0
        share = self._share()
        ready = deque(key for key, lane in self._lanes.items() if lane.waiting)
        while ready and self.engine.free > 0:
            key = ready.popleft()
            lane = self._lanes[key]
            if not self._send_next(key, lane, share):
                continue  # its window is full
            sent += 1
            # Whoever had a turn goes to the end, here and for the next call.
            self._lanes.move_to_end(key)
            if lane.waiting:
                ready.append(key)
        return sent

    def _share(self) -> int:
        """How much of the engine's window one subscription may fill: hanging ones leave room."""
        return max(1, self.engine.window // (len(self._lanes) + 1))

    def _send_next(self, subscription_id: int, lane: Lane, share: int) -> bool:
        """Send or give back the lane's first item; false when its window is full."""
        subscription = self.subscriptions.get(subscription_id)
        if subscription and lane.in_flight >= min(share, subscription.in_flight_limit):
            return False
        order, item = lane.waiting.popleft()
        now = time.time()
        if (
            subscription is None
            or not subscription.sendable
            or order.order.lease_until < now + subscription.timeout + LEASE_MARGIN_SECONDS
        ):
            self._give_back(order, item)
        else:
            lane.in_flight += 1
            self.engine.submit(_request(subscription, order, item, int(now)))
        return True

    def _give_back(self, order: ClaimedOrder, item: Item) -> None:
        self.sink.put(order, _result(order.order, item, outcome="unsent"))

    # -- out -------------------------------------------------------------------------------------
    def _answered(self, response: http.Response) -> None:
        order, item = response.request.tag
        self._lanes[order.order.subscription].in_flight -= 1
        delivered = 200 <= response.status < 300
        if not delivered:
            self.heartbeat.failed += 1
        self.sink.put(order, _answer(order.order, item, response, delivered))

    def _drop_empty_lanes(self) -> None:
        empty = [
            key for key, lane in self._lanes.items() if not lane.waiting and not lane.in_flight
        ]
        for key in empty:
            del self._lanes[key]


def _request(
    subscription: Subscription, order: ClaimedOrder, item: Item, timestamp: int
) -> http.Request:
    body = item.body.encode()
    return http.Request(
        url=subscription.url,
        body=body,
        headers=[
            ("content-type", "application/json"),
            *signing.headers(subscription.keys, str(item.msg_id), timestamp, body),
        ],
        timeout=subscription.timeout,
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


def _answer(order: Order, item: Item, response: http.Response, delivered: bool) -> Result:
    return _result(
        order,
        item,
        outcome="delivered" if delivered else "failed",
        http_status=response.status,
        error=response.error,
        seconds=round(response.seconds, 4),
        retry_after=0.0 if delivered else _retry_after(response.headers),
        at=round(time.time() - response.seconds, 3),
        detail=response.detail,
        response_headers=_text(response.headers, RESPONSE_HEADERS_KEPT),
        response_body=_text(response.body, RESPONSE_BODY_KEPT),
    )


def _text(raw: bytes, kept: int) -> str:
    """As text that any database takes; what is no UTF-8 becomes U+FFFD."""
    return raw[:kept].decode("utf-8", "replace").replace("\0", "\ufffd")


def _retry_after(headers: bytes) -> float:
    """Seconds of a Retry-After header in delta form, bounded; 0 without one.

    The date form is left to the schedule: it needs the two clocks to agree.
    """
    for line in headers.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"retry-after" and value.strip().isdigit():
            return min(float(value), _MAX_RETRY_AFTER)
    return 0.0
