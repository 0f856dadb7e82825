"""Sender: delivers work orders, many subscriptions in one process, none delayed by another.

Three threads, joined by bounded buffers, so that the one that drives libcurl does no other I/O:

    OrderFeed  ──inbox──▶  Sender.turn (libcurl)  ──results──▶  ResultSink
    claims orders          sends, collects answers               writes the marker queue, then
    from Redis                                                   forgets the finished orders
"""

from __future__ import annotations

import gc
import time
import uuid
from collections.abc import Collection, Sequence

from django.conf import settings

from msgplatform.core import logging
from msgplatform.core.daemons.daemon import Worker
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.daemons.timer import Every
from msgplatform.core.http import engine as http
from msgplatform.core.rates import breaker
from notify.directory import Subscription, Subscriptions
from notify.orders import Item
from notify.sender import webhook
from notify.sender.claimer import ClaimedOrder, OrderFeed
from notify.sender.lanes import Lane, Lanes
from notify.sender.result_writer import ResultSink
from notify.sender.unserved import Unserved
from notify.subscriptions.limits import LEASE_MARGIN_SECONDS

log = logging.get(__name__)

_POLL_SECONDS = 0.2
_LEAST_POLL_SECONDS = 0.005
# How often the lanes' state is handed to the feed, which reports it once a second.
_SAY_SECONDS = 0.5
_REFRESH_SECONDS = 0.5  # they know themselves whether they are due


class Sender(Worker):
    """`only` dedicates the process to these subscriptions; without, it serves all but those that
    have a process of their own."""

    role = "sender"

    def __init__(
        self,
        window: int = 1024,
        only: Collection[int] = (),
        policy: breaker.Policy | None = None,
    ) -> None:
        super().__init__()
        self.name = uuid.uuid4().hex
        self.subscriptions = Subscriptions()
        self.refresher = ThreadLoop("refresher", self._refresh, every=_REFRESH_SECONDS)
        self._unserved = None if only else Unserved(self.subscriptions)
        self.engine = http.engine_from_settings(window=window)
        self.sink = ResultSink()
        self.feed = OrderFeed(self.name, self.subscriptions, self.engine.wake, only)
        self.lanes = Lanes(window, policy or _policy())
        self._next_say = Every(_SAY_SECONDS)
        self._breaker_moved = False

    def start(self) -> None:
        # What was imported lives for ever, and messages die by themselves: collect seldom.
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        self.refresher.start()
        self.sink.start()
        self.feed.start()

    def _refresh(self) -> None:
        self.subscriptions.refresh()
        if self._unserved:
            self._unserved.look()

    def turn(self) -> bool:
        """Take in claimed orders, send what the windows allow, collect answers."""
        took = self._take_in()
        sent = self._fill_windows()
        busy = took or sent
        self._answered(self.engine.poll(0.0 if busy else self._patience()))
        self._say()
        # poll() has waited already; an idle engine must not wait a second time in the loop.
        return True

    def drain(self, deadline: float) -> None:
        """Finish what is in flight; give back, unsent, what has not been started.

        It takes as long as the longest request may: one that is cut off is delivered twice.
        """
        self.feed.stop()
        self._take_in()
        for lane in self.lanes:
            self._give_back_all(lane)
        deadline = max(deadline, time.monotonic() + self._longest_in_flight())
        while self.engine.in_flight and time.monotonic() < deadline:
            self._answered(self.engine.poll(_POLL_SECONDS))

    def stop(self) -> None:
        self.refresher.stop()
        self.feed.stop()
        self.sink.stop()
        self.engine.close()
        self.feed.disown()

    # -- in --------------------------------------------------------------------------------------
    def _take_in(self) -> int:
        claimed = self.feed.take()
        for order in claimed:
            lane = self.lanes.of(order.order.subscription, order.before)
            lane.waiting.extend([(order, item) for item in order.order.items])
            # So that a message's memory is free when it is done, not when its whole order is.
            order.order.items.clear()
        return len(claimed)

    def _fill_windows(self) -> int:
        """Lanes in turn, each an equal part of what is free: a long queue starves no short one."""
        ready = self.lanes.ready()
        if not ready or not self.sink.has_room:
            return 0
        active = sum(1 for lane in self.lanes if lane.waiting or lane.in_flight)
        sent = 0
        for number, lane in enumerate(ready):
            free = self.engine.free
            if free <= 0:
                break
            part = max(1, free // (len(ready) - number))
            if count := self._send_from(lane, part, active):
                sent += count
                self.lanes.had_turn(lane)
        return sent

    def _send_from(self, lane: Lane, most: int, active: int) -> int:
        """Send up to `most` of one lane's messages, as far as its limits go; how many went."""
        subscription = self.subscriptions.get(lane.subscription)
        if subscription is None or not subscription.sendable:
            self._give_back_all(lane)
            return 0
        now = time.monotonic()
        lane.adapt(subscription, now)
        room = self.lanes.room(lane, subscription.in_flight_limit, self.engine.free, active)
        allowed = int(min(room, most, lane.allowance(now)))
        sent = self._send(lane, subscription, allowed) if allowed > 0 else 0
        if sent:
            lane.sent(now, sent)
        if lane.must_give_back:
            self._give_back_all(lane)
        return sent

    def _send(self, lane: Lane, subscription: Subscription, most: int) -> int:
        """Messages whose lease may end during the request are given back instead."""
        now = time.time()
        horizon = now - self.subscriptions.clock_ahead + subscription.timeout + LEASE_MARGIN_SECONDS
        waiting = lane.waiting
        entries: list[webhook.Entry] = []
        while waiting and len(entries) < most:
            entry = waiting.popleft()
            if entry[0].order.lease_until < horizon:
                self._give_back(*entry)
            else:
                entries.append(entry)
        for request in webhook.envelope(subscription).requests(entries, int(now)):
            self.engine.submit(request)
        return len(entries)

    def _give_back_all(self, lane: Lane) -> None:
        while lane.waiting:
            self._give_back(*lane.waiting.popleft())

    def _give_back(self, order: ClaimedOrder, item: Item) -> None:
        self.sink.put(order, webhook.unsent(order.order, item))

    # -- out -------------------------------------------------------------------------------------
    def _answered(self, responses: Sequence[http.Response]) -> None:
        """Each answer to its lane, its breaker and, all together, to the sink."""
        if not responses:
            return
        now, wall = time.monotonic(), time.time()
        lanes, results = self.lanes, []
        failed = 0
        for response in responses:
            order, item = response.request.tag
            lane = lanes[order.order.subscription]
            delivered = 200 <= response.status < 300
            failed += not delivered
            results.append((order, webhook.answer(order.order, item, response, delivered, wall)))
            if lane.answered(response.status, now, now - response.seconds):
                self._moved(lane, now)
        self.heartbeat.done += len(responses)
        self.heartbeat.failed += failed
        self.sink.put_all(results)

    def _moved(self, lane: Lane, now: float) -> None:
        """The lane's breaker opened or closed."""
        self._breaker_moved = True
        log.info(
            "breaker", subscription=lane.subscription, state=lane.breaker.state,
            wait=round(lane.breaker.wait(now), 1),
        )  # fmt: skip
        if lane.must_give_back:
            self._give_back_all(lane)

    def _longest_in_flight(self) -> float:
        """Seconds that a request which is on its way may still take."""
        rows = [self.subscriptions.get(lane.subscription) for lane in self.lanes if lane.in_flight]
        return max((row.timeout for row in rows if row), default=0.0)

    # -- between turns ---------------------------------------------------------------------------
    def _patience(self) -> float:
        """Until something can happen by itself: a paced message is due, a probe may go."""
        wait = self.lanes.next_wait(time.monotonic())
        # Not 0: a lane that is due may be full, and only an answer changes that.
        return min(_POLL_SECONDS, max(_LEAST_POLL_SECONDS, wait))

    def _say(self) -> None:
        """Hand the lanes' state to the feed; at once when a breaker moved."""
        if not self._next_say.is_due and not self._breaker_moved:
            return
        now = time.monotonic()
        self.lanes.forget(self.feed.lost)
        # Reported before they are dropped: that a breaker closed must be heard.
        self.feed.say(self.lanes.report(self.name, now), at_once=self._breaker_moved)
        self.lanes.drop_idle(now)
        self._next_say.restart()
        self._breaker_moved = False


def _policy() -> breaker.Policy:
    if settings.NOTIFY_BREAKER:
        return breaker.Policy(
            cap=settings.NOTIFY_BREAKER_SECONDS, probe_timeout=2 * settings.NOTIFY_TIMEOUT_SECONDS
        )
    return breaker.Policy(failures_in_a_row=10**9, min_results=10**9)
