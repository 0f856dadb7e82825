"""Sender: delivers work orders of many subscriptions. No subscription delays another.

Three threads, joined by bounded buffers, so that the thread that drives libcurl does no other I/O:

    OrderClaimer   ──inbox──▶  Sender.turn (libcurl)    ──results──▶  ResultWriter
    claims orders              sends, collects answers                writes the marker queue, then
    from Redis                                                        forgets the finished orders
"""

import gc
import threading
import time
import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from django.conf import settings

from msgplatform.core import logging
from msgplatform.core.daemons.daemon import Worker
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.daemons.timer import Every
from msgplatform.core.daemons.wake_signal import Listener
from msgplatform.core.errors import Undecryptable
from msgplatform.core.http import engine as http
from msgplatform.core.rates import breaker
from notify import orders, signals
from notify.directory import Subscriptions
from notify.sender import webhook
from notify.sender.claimer import OrderClaimer
from notify.sender.in_flight import ClaimedOrder
from notify.sender.lanes import Lane, Lanes, Usage
from notify.sender.result_writer import AttemptSpans, ResultWriter
from notify.subscriptions import limits

log = logging.get(__name__)

_POLL_SECONDS = 0.5
_MIN_POLL_SECONDS = 0.005
_NEVER = 10**9
# The lanes' states go to the claimer in this interval. The claimer reports them once a second.
_REPORT_SECONDS = 0.5
_REFRESH_SECONDS = 0.5  # between two checks whether a refresh is due


class Sender(Worker):
    """`only` dedicates the process to these subscriptions. Without `only` it serves all
    subscriptions that have no process of their own."""

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
        self._changed = threading.Event()  # a person has changed a subscription or a consumer
        self._listener = Listener(signals.SUBSCRIPTIONS, self._read_anew)
        self.engine = http.engine_from_settings(window=window)
        self.results = ResultWriter()
        self.claimer = OrderClaimer(self.name, self.subscriptions, self.engine.wake, only)
        if policy is None and settings.NOTIFY_BREAKER_ENABLED:
            timeout = 2 * settings.NOTIFY_TIMEOUT_SECONDS
            policy = breaker.Policy(cap=settings.NOTIFY_BREAKER_SECONDS, probe_timeout=timeout)
        never_opens = breaker.Policy(failures_in_a_row=_NEVER, min_results=_NEVER)
        self._spans = AttemptSpans()
        self.lanes = Lanes(window, policy or never_opens)
        self._next_report = Every(_REPORT_SECONDS)
        self._has_moved = False

    def start(self) -> None:
        gc.freeze()  # imported modules live for ever
        self.refresher.start()
        self._listener.start()
        self.results.start()
        self.claimer.start()

    def _read_anew(self) -> None:
        self._changed.set()
        self.refresher.wake()

    def _refresh(self) -> None:
        is_changed = self._changed.is_set()
        self._changed.clear()  # before the load: a change that comes during it is read again
        self.subscriptions.refresh(at_once=is_changed)

    def turn(self) -> bool:
        """Take in claimed orders, send as many messages as the windows allow, collect answers."""
        claimed_count = self._take_in()
        sent_count = self._fill_windows()
        patience = 0.0
        if not claimed_count and not sent_count:
            # Wait until a paced message is due or a probe may go. The minimum is above 0, because a
            # due lane may be full until an answer comes.
            wait = self.lanes.next_wait(time.monotonic())
            patience = min(_POLL_SECONDS, max(_MIN_POLL_SECONDS, wait))
        self._report_answers(self.engine.poll(patience))
        if self._next_report.is_due or self._has_moved:
            now = time.monotonic()
            ended_ids = {
                lane.subscription
                for lane in self.lanes
                if self.subscriptions.has_ended(lane.subscription)
            }
            self.lanes.forget(self.claimer.lost | ended_ids)
            # Lanes are reported before they are dropped, so that others learn of a closed breaker.
            database_now = time.time() - self.subscriptions.clock_ahead
            states = self.lanes.report(self.name, now, database_now)
            self.claimer.set_states(states, at_once=self._has_moved)
            self.lanes.drop_idle(now)
            self._next_report.restart()
            self._has_moved = False
        # poll() has waited already; an idle engine must not wait a second time in the loop.
        return True

    def drain(self, deadline: float) -> None:
        """Finish the requests in flight, and give waiting messages back unsent.

        Takes up to the longest timeout, because a request that is cut off is delivered twice. The
        queues stay this sender's until the end, so that no other sender sends at the same time.
        """
        self.claimer.stop_claiming()
        self._give_back_unstarted()
        rows = [self.subscriptions.get(lane.subscription) for lane in self.lanes if lane.in_flight]
        longest = max((row.timeout for row in rows if row), default=0.0)
        deadline = max(deadline, time.monotonic() + longest)
        while self.engine.in_flight and time.monotonic() < deadline:
            self._report_answers(self.engine.poll(_POLL_SECONDS))
            self._give_back_unstarted()  # perhaps of a late claim
        self.claimer.stop()
        self._give_back_unstarted()

    def stop(self) -> None:
        self._listener.stop()
        self.refresher.stop()
        self.claimer.stop()
        self.results.stop()
        self.engine.close()
        # Last: a sender that takes the queues over must not send beside this process.
        self.claimer.disown()

    # -- in --------------------------------------------------------------------------------------
    def _take_in(self) -> int:
        claimed_orders = self.claimer.take()
        for order in claimed_orders:
            if order.is_lost:
                self._give_back(order)
                continue
            system = orders.system_of(order.claimed.queue)
            lane = self.lanes.of(order.order.subscription, order.before, system)
            if order.order.is_probe:
                lane.probe_now(time.monotonic())
            lane.waiting.extend([(order, item) for item in order.order.items])
            # Clear the list, so that a message's memory is free when the message is done.
            order.order.items.clear()
        return len(claimed_orders)

    def _fill_windows(self) -> int:
        """Send from systems in turn, then from their lanes. Each system gets an equal part of the
        free window, and each of its lanes an equal part of that. So a long queue does not starve a
        short queue, nor a large system a small system. Returns the number of messages."""
        ready_lanes = self.lanes.ready()
        if not (ready_lanes and self.results.has_capacity):
            return 0
        usage = self.lanes.usage()
        sent_count, lane_counts = 0, Counter(lane.system for lane in ready_lanes)
        for lane in ready_lanes:
            free = self.engine.free
            if free <= 0 or not self.claimer.may_begin:
                break
            part = max(1, free // (len(lane_counts) * lane_counts[lane.system]))
            lane_counts[lane.system] -= 1
            if not lane_counts[lane.system]:
                del lane_counts[lane.system]
            if count := self._send_from(lane, part, usage):
                sent_count += count
                self.lanes.had_turn(lane)
                usage[lane.system].in_flight += count
        return sent_count

    def _send_from(self, lane: Lane, limit_of_turn: int, usage: Mapping[int, Usage]) -> int:
        """Send up to `limit_of_turn` of one lane's messages, as far as its limits allow; returns
        the number of messages."""
        subscription = self.subscriptions.get(lane.subscription)
        if subscription is None or not subscription.is_sendable:
            self._give_back_all(lane)
            return 0
        now, wall = time.monotonic(), time.time()
        lane.adapt(subscription, now)
        limit, free = subscription.in_flight_limit, self.engine.free
        capacity = self.lanes.capacity(lane, limit, free, usage)
        max_entries = int(min(capacity, limit_of_turn, lane.allowance(now)))
        # Leases end by the database's clock. A message whose lease may end during the request goes
        # back, because another sender might send it at the same time.
        database_now = wall - self.subscriptions.clock_ahead
        horizon = database_now + subscription.timeout + limits.LEASE_MARGIN_SECONDS
        entries = self._entries(lane, max_entries, horizon)
        if entries:
            entries = self._spans.begin(entries, subscription)
            for request in webhook.envelope(subscription).requests(entries, int(wall)):
                self.engine.submit(request)
            lane.sent(now, len(entries))
            if not lane.waiting and lane.subscription in self.claimer.held_back:
                self.claimer.wake()
        if lane.has_open_breaker:
            self._give_back_all(lane)
        return len(entries)

    def _entries(self, lane: Lane, max_entries: int, horizon: float) -> list[webhook.Entry]:
        """Take up to `max_entries` waiting messages. Messages whose lease ends before `horizon` go
        back."""
        entries: list[webhook.Entry] = []
        while lane.waiting:
            order, item = lane.waiting[0]
            goes_back = order.is_lost or order.order.lease_until < horizon
            if not goes_back and len(entries) >= max_entries:
                break
            lane.waiting.popleft()
            order.unsent_items -= 1
            if goes_back:
                self.results.put(order, webhook.unsent_result(order.order, item))
                continue
            try:
                entries.append((order, webhook.opened(item)))
            except Undecryptable as error:
                self.results.put(order, webhook.unreadable_result(order.order, item, str(error)))
        return entries

    def _give_back_unstarted(self) -> None:
        self._take_in()
        for lane in self.lanes:
            self._give_back_all(lane)

    def _give_back(self, order: ClaimedOrder) -> None:
        order.unsent_items = 0
        results = [(order, webhook.unsent_result(order.order, item)) for item in order.order.items]
        self.results.put_all(results)

    def _give_back_all(self, lane: Lane) -> None:
        while lane.waiting:
            order, item = lane.waiting.popleft()
            order.unsent_items -= 1
            self.results.put(order, webhook.unsent_result(order.order, item))

    # -- out -------------------------------------------------------------------------------------
    def _report_answers(self, responses: Sequence[http.Response]) -> None:
        """Report each answer to its lane and breaker, and pass all results to the result writer."""
        if not responses:
            return
        now, wall = time.monotonic(), time.time()
        lanes, results = self.lanes, []
        for response in responses:
            order, item = response.request.tag
            lane = lanes[order.order.subscription]
            is_delivered = 200 <= response.status < 300
            # A subscription that was deleted keeps nothing.
            row = self.subscriptions.get(lane.subscription)
            is_kept = row is not None and limits.is_answer_kept(row.log_answers, is_delivered)
            result = webhook.answer(order.order, item, response, is_delivered, wall, is_kept)
            results.append((order, result))
            if result.trace:
                self._spans.end(result)
            if lane.answered(response.status, now, now - response.seconds):
                self._has_moved = True
                log.info(
                    "breaker", subscription=lane.subscription, state=lane.breaker.state,
                    wait=round(lane.breaker.wait(now), 1),
                )  # fmt: skip
                if lane.has_open_breaker:
                    self._give_back_all(lane)
        self.heartbeat.done += len(responses)
        self.results.put_all(results)
