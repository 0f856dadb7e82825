"""A lane for each subscription of a sender: the messages that wait, and the number that may go now.

A lane joins three limits: requests in flight, the rate limit, the circuit breaker. A lane does no
I/O: the sender asks the lane, and reports every answer to the lane.
"""

import math
import time
from collections import OrderedDict, defaultdict, deque
from collections.abc import Collection, Iterator, Mapping
from itertools import chain

import msgspec

from msgplatform.core.rates import breaker as circuit
from msgplatform.core.rates.rate_limit import RateLimit
from notify.directory import Subscription
from notify.orders import Item, in_turns
from notify.presence import LaneState
from notify.sender.in_flight import ClaimedOrder

# A consumer that answers with such a status is down, or not open to this platform.
_NOT_THERE = frozenset({401, 403, 404, 405, 408, 410, 425, 429})
# 1/4 of the window is kept for each lane's first request, so that consumers that stop answering,
# one after another, cannot fill the window.
RESERVE = 4
# 1/32 of the window is kept for systems with little in flight, an equal share for each. The slow
# consumers of one system, however many, cannot fill this part.
_RESERVE_OF_SYSTEMS = 32
# Seconds that a lane stays busy with no message waiting, as between two orders. The lane keeps its
# rate: without a rate the next orders would be longer than their lease.
_BUSY_GAP_SECONDS = 10.0
_BUSY_AVERAGE_SECONDS = 60.0
# The weight of the latest measurement in the rate of answers.
_SMOOTHING = 0.3


def is_alive(status: int) -> bool:
    """True if an answer shows that the consumer works, even if it refuses this message."""
    return 200 <= status < 300 or (400 <= status < 500 and status not in _NOT_THERE)


class Lane:
    """The lane of one subscription, for the sending thread alone. Times are monotonic seconds."""

    def __init__(
        self, subscription: int, policy: circuit.Policy, before: LaneState | None, system: int = 0
    ) -> None:
        self.subscription, self.system = subscription, system
        self.waiting: deque[tuple[ClaimedOrder, Item]] = deque()
        self.in_flight = 0
        self.breaker = circuit.Breaker(policy)
        self.rate_limit = RateLimit(0.0)
        self.per_second = 0.0
        self._answer_count = 0
        self._limit = 1  # requests in flight
        self._busy_since: float | None = None
        self._busy_per_second = 0.0
        self._full_at = -math.inf  # the last time at which all slots were taken or a message waited
        self._oldest_due = 0.0  # of the first message that waited then
        self._measured_at = time.monotonic()
        self._success_count = 0  # successes that were not reported to the breaker yet
        # Successes of calls that began before the breaker's last change do not count. While the
        # breaker is open none counts.
        self._steady_since = -math.inf
        self._is_taken_over = before is not None
        if before and before.is_open:
            now = self._measured_at
            opened_at = now - before.open_for
            self.breaker.resume(now, before.retry_in, before.opened_in_a_row, opened_at)
            self._steady_since = math.inf

    def adapt(self, subscription: Subscription, now: float) -> None:
        self._limit = subscription.in_flight_limit
        if self.rate_limit.rate != subscription.rate_limit:
            self.rate_limit.change(subscription.rate_limit)
            if self._is_taken_over:  # the former sender may have sent just now
                self.rate_limit.hold(now)
                self._is_taken_over = False

    def allowance(self, now: float) -> float:
        """The number of messages that the rate limit and the breaker allow now."""
        if self.breaker.state is circuit.State.CLOSED:
            return self.rate_limit.allowance(now)
        can_probe = self.breaker.wait(now) == 0.0 and self.rate_limit.allowance(now) >= 1
        return 1 if can_probe else 0

    def probe_now(self, now: float) -> None:
        """Let one message through an open breaker, because a person asked for a probe."""
        self.breaker.probe_now(now)

    def sent(self, now: float, count: int) -> None:
        """Count `count` messages as sent. While the breaker is not closed, this is the probe."""
        self.in_flight += count
        self.rate_limit.take(now, count)
        self.breaker.allow(now)

    def answered(self, status: int, now: float, started_at: float) -> bool:
        """Count an answer (status 0: no answer). Returns True if the answer moved the breaker."""
        self.in_flight -= 1
        self._answer_count += 1
        is_working = is_alive(status)
        if is_working and started_at >= self._steady_since:
            self._success_count += 1
            return False
        self._report_successes(now)
        state_before = self.breaker.state
        if is_working:
            self.breaker.success(now, started_at)
        else:
            self.breaker.failure(now, started_at)
        if self.breaker.state is state_before:
            return False
        self._steady_since = now if self.breaker.state is circuit.State.CLOSED else math.inf
        return True

    def _report_successes(self, now: float) -> None:
        """Report all new successes to the breaker. Successes change nothing in a closed breaker, so
        they are reported only before the next failure and with each measurement."""
        if self._success_count:
            self.breaker.success(now, calls=self._success_count)
            self._success_count = 0

    @property
    def has_open_breaker(self) -> bool:
        """True if the breaker is open. Then no messages wait in memory."""
        return self.breaker.state is circuit.State.OPEN

    def is_over(self, now: float) -> bool:
        """True if the lane has no messages, and no state to remember."""
        return (
            not self.waiting
            and not self.in_flight
            and self._busy_since is None
            and self.breaker.state is circuit.State.CLOSED
            and self.rate_limit.is_idle(now)
        )

    def measure(self, now: float) -> None:
        """Measure the rate of answers, twice a second, if messages always waited. A lane without
        waiting messages does not show its consumer's speed."""
        self._report_successes(now)
        seconds = now - self._measured_at
        if seconds <= 0:
            return
        self._measure_busy(now, seconds)
        if self.waiting:
            rate = self._answer_count / seconds
            average = self.per_second
            self.per_second = rate if not average else average + _SMOOTHING * (rate - average)
        elif self._busy_since is None:
            self.per_second = 0.0
        self._answer_count, self._measured_at = 0, now

    def _measure_busy(self, now: float, seconds: float) -> None:
        """Measure since when the lane is busy, and the rate of answers since then: at first the
        average of that time, then of about the last minute."""
        if self.waiting:
            self._oldest_due = self.waiting[0][1].due
        if self.waiting or self.in_flight >= self._limit:
            self._full_at = now
            if self._busy_since is None:
                self._busy_since, self._busy_per_second = now - seconds, 0.0
        elif now - self._full_at > _BUSY_GAP_SECONDS:
            self._busy_since, self._oldest_due = None, 0.0
        if self._busy_since is not None:
            weight = seconds / max(seconds, min(_BUSY_AVERAGE_SECONDS, now - self._busy_since))
            self._busy_per_second += weight * (self._answer_count / seconds - self._busy_per_second)

    def live(self, sender: str, now: float, database_now: float = 0.0) -> LaneState:
        """The lane's report. `database_now`: unix seconds by the database's clock."""
        due, busy_since = self._oldest_due, self._busy_since
        is_closed = self.breaker.state is circuit.State.CLOSED
        return LaneState(
            sender=sender,
            in_flight=self.in_flight,
            waiting=len(self.waiting),
            breaker=self.breaker.state,
            opened_in_a_row=self.breaker.opened_in_a_row,
            retry_in=self.breaker.wait(now),
            open_for=0.0 if is_closed else now - self.breaker.opened_at,
            # Never rounded down to 0, which means "not measured".
            per_second=max(0.001, round(self.per_second, 3)) if self.per_second else 0.0,
            oldest_for=max(0.0, database_now - due) if due else 0.0,
            busy_for=0.0 if busy_since is None else now - busy_since,
            busy_per_second=0.0 if busy_since is None else round(self._busy_per_second, 3),
        )


class Usage(msgspec.Struct):
    """A system's part of the window: lanes with messages, and requests in flight."""

    active: int = 0
    in_flight: int = 0


class Lanes:
    """All lanes of one sender, and their systems, both in the order of their last turns."""

    def __init__(self, window: int, policy: circuit.Policy) -> None:
        self._window = window
        self._policy = policy
        self._lanes: OrderedDict[int, Lane] = OrderedDict()
        self._systems: OrderedDict[int, None] = OrderedDict()

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._lanes.values())

    def __getitem__(self, subscription: int) -> Lane:
        return self._lanes[subscription]

    def of(self, subscription: int, before: LaneState | None = None, system: int = 0) -> Lane:
        """The subscription's lane; a new lane goes on where `before`, another sender's, ended."""
        lane = self._lanes.get(subscription)
        if lane is None:
            lane = self._lanes[subscription] = Lane(subscription, self._policy, before, system)
            self._systems.setdefault(system)
        return lane

    def ready(self) -> list[Lane]:
        """Lanes with waiting messages, in turns of their systems. The system, and in it the lane,
        with the oldest turn comes first."""
        by_system: dict[int, list[Lane]] = {system: [] for system in self._systems}
        for lane in self:
            if lane.waiting:
                by_system[lane.system].append(lane)
        return in_turns(chain.from_iterable(by_system.values()), lambda lane: lane.system)

    def usage(self) -> dict[int, Usage]:
        """The usage of each system that has messages waiting or in flight."""
        systems: dict[int, Usage] = defaultdict(Usage)
        for lane in self:
            if lane.waiting or lane.in_flight:
                usage = systems[lane.system]
                usage.active += 1
                usage.in_flight += lane.in_flight
        return systems

    def capacity(self, lane: Lane, limit: int, free: int, usage: Mapping[int, Usage]) -> int:
        """The number of further requests that the lane may have in flight, by its limit and by its
        share of its system's share of the window. From the reserve a lane gets its first request,
        and at most half of the part that is kept for its system."""
        systems, system = len(usage), usage[lane.system]
        share = max(1, self._window // (systems * system.active + 1))
        reserve = self._window // _RESERVE_OF_SYSTEMS
        open_to_all, kept_for_system = free - self._window // RESERVE, reserve // systems
        # Half, so that one consumer leaves first requests to the system's other consumers.
        open_to_system = kept_for_system // 2 - system.in_flight
        if not lane.in_flight:
            open_to_all = max(open_to_all, int(free > reserve))
            is_small = system.in_flight < max(1, kept_for_system)
            open_to_system = max(open_to_system, int(is_small))
        return min(
            limit - lane.in_flight,
            share - lane.in_flight,
            max(open_to_all, min(free, open_to_system)),
        )

    def had_turn(self, lane: Lane) -> None:
        self._lanes.move_to_end(lane.subscription)
        self._systems.move_to_end(lane.system)

    def forget(self, subscriptions: Collection[int]) -> None:
        """Forget the lanes of these subscriptions, which another sender has now, or which have
        ended. Lanes with messages waiting or in flight stay."""
        for key in subscriptions:
            lane = self._lanes.get(key)
            if lane and not lane.waiting and not lane.in_flight:
                del self._lanes[key]

    def drop_idle(self, now: float) -> None:
        for key in [lane.subscription for lane in self if lane.is_over(now)]:
            del self._lanes[key]
        for system in self._systems.keys() - {lane.system for lane in self}:
            del self._systems[system]

    def next_wait(self, now: float) -> float:
        """Seconds until a lane that has something waiting may go on by itself."""
        waits = [
            max(lane.rate_limit.wait(now), lane.breaker.wait(now))
            for lane in self
            if lane.waiting
            and (lane.rate_limit.rate or lane.breaker.state is not circuit.State.CLOSED)
        ]
        return min(waits, default=math.inf)

    def report(self, sender: str, now: float, database_now: float = 0.0) -> dict[int, LaneState]:
        for lane in self:
            lane.measure(now)
        return {lane.subscription: lane.live(sender, now, database_now) for lane in self}
