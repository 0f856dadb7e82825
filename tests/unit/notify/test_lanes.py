"""Lanes: what one subscription may send, and what it may not take from the others."""

import time
from typing import Any

import pytest

from msgplatform.core.queues.jobs import Claimed
from msgplatform.core.rates import breaker as circuit
from notify.orders import Item, Order
from notify.presence import LaneState
from notify.sender import lanes
from notify.sender.in_flight import ClaimedOrder
from notify.sender.lanes import Lane, Lanes, Usage, is_alive

POLICY = circuit.Policy(failures_in_a_row=3, first=10.0, jitter=0.0)


def filled(lane: Lane, count: int = 5) -> Lane:
    items = [Item(n, n, 1, "{}") for n in range(count)]
    order = Order(lane.subscription, "c", 0.0, items)
    claimed = ClaimedOrder(Claimed("q", "j", None, 0.0), order, count, 0, count)
    lane.waiting.extend((claimed, item) for item in items)
    return lane


def failed(lane: Lane, now: float, times: int) -> None:
    for _ in range(times):
        lane.sent(now, 1)
        lane.answered(0, now, now)


class TestBreaker:
    def test_opens_and_wants_its_messages_given_back(self) -> None:
        lane = filled(Lane(1, POLICY, None))
        failed(lane, 100.0, 3)
        assert lane.has_open_breaker
        assert lane.allowance(100.0) == 0

    def test_one_probe_when_its_time_has_come(self) -> None:
        lane = filled(Lane(1, POLICY, None))
        failed(lane, 100.0, 3)
        assert lane.allowance(110.0) == 1
        lane.sent(110.0, 1)
        assert lane.allowance(110.0) == 0, "no second probe beside the first"
        assert not lane.has_open_breaker, "what waits behind the probe stays"

    def test_goes_on_when_the_probe_succeeds(self) -> None:
        lane = filled(Lane(1, POLICY, None))
        failed(lane, 100.0, 3)
        lane.sent(110.0, 1)
        assert lane.answered(204, 110.1, 110.0)
        assert lane.allowance(110.1) > 1

    def test_a_new_sender_goes_on_with_an_open_breaker(self) -> None:
        before = LaneState(
            sender="other", breaker=circuit.State.OPEN,
            opened_in_a_row=4, retry_in=30, open_for=7,
        )  # fmt: skip
        lane = Lane(1, POLICY, before)
        now = lane._measured_at  # when it was made
        assert lane.has_open_breaker
        assert lane.allowance(now + 25) == 0
        assert lane.allowance(now + 31) == 1
        said = lane.live("me", now)
        assert (said.opened_in_a_row, round(said.open_for)) == (4, 7)

    def test_a_success_between_failures_ends_their_row(self) -> None:
        lane = filled(Lane(1, POLICY, None))
        for now in (100.0, 101.0, 102.0):
            failed(lane, now, 2)
            lane.sent(now, 1)
            assert not lane.answered(200, now, now)
        assert lane.breaker.state is circuit.State.CLOSED

    def test_successes_count_against_the_share_of_failures(self) -> None:
        policy = circuit.Policy(failures_in_a_row=1000, min_results=20, failure_share=0.5)
        good, bad = Lane(1, policy, None), Lane(2, policy, None)
        for lane, successes in ((good, 30), (bad, 10)):
            for _ in range(successes):
                lane.answered(200, 100.0, 100.0)
            failed(lane, 100.0, 15)
        assert good.breaker.state is circuit.State.CLOSED
        assert bad.breaker.state is circuit.State.OPEN

    def test_answers_of_calls_before_the_last_change_say_nothing(self) -> None:
        """The probe closed it; what hung since before it opened comes in now."""
        lane = filled(Lane(1, POLICY, None))
        failed(lane, 100.0, 3)
        assert not lane.answered(200, 105.0, 99.0), "open: nobody asked"
        assert lane.has_open_breaker
        lane.sent(110.0, 1)
        assert lane.answered(200, 110.5, 110.0)
        failed(lane, 111.0, 2)
        lane.answered(200, 111.5, 99.5)
        failed(lane, 112.0, 1)
        assert lane.has_open_breaker, "an old success does not end a row of new failures"

    @pytest.mark.parametrize(
        ("status", "alive"),
        [(200, True), (204, True), (400, True), (409, True), (422, True), (301, False),
         (401, False), (403, False), (404, False), (410, False), (429, False), (500, False),
         (503, False), (0, False)],
    )  # fmt: skip
    def test_who_refuses_one_message_is_not_away(self, status: int, alive: bool) -> None:
        assert is_alive(status) is alive


class TestCapacity:
    def capacity(self, lane: Lane, limit: int = 100, free: int = 64, active: int = 1) -> int:
        usage = {lane.system: Usage(active, lane.in_flight)}
        return Lanes(64, POLICY).capacity(lane, limit, free, usage)

    def test_the_subscriptions_own_limit(self) -> None:
        lane = Lane(1, POLICY, None)
        assert self.capacity(lane, limit=3) == 3
        lane.in_flight = 3
        assert self.capacity(lane, limit=3) <= 0

    def test_a_share_of_the_window(self) -> None:
        assert self.capacity(Lane(1, POLICY, None), active=3) == 64 // 4

    def test_the_reserve_is_for_first_requests(self) -> None:
        """Hanging consumers cannot take the last quarter; one that just came gets a place."""
        lane = Lane(1, POLICY, None)
        reserve = 64 // lanes.RESERVE
        lane.in_flight = 1
        assert self.capacity(lane, free=reserve) <= 0
        lane.in_flight = 0
        assert self.capacity(lane, free=reserve) == 1


class TestSystems:
    """One system has many lanes, another one has few."""

    def both(self) -> Lanes:
        some = Lanes(64, POLICY)
        for key in range(1, 101):
            filled(some.of(key, system=1))
        filled(some.of(200, system=2))
        return some

    def test_take_turns_then_their_lanes(self) -> None:
        some = self.both()
        assert [lane.subscription for lane in some.ready()[:3]] == [1, 200, 2]
        some.had_turn(some[1])
        assert [lane.subscription for lane in some.ready()[:3]] == [200, 2, 3]
        some.had_turn(some[200])
        assert [lane.subscription for lane in some.ready()[:3]] == [2, 200, 3]

    def test_share_the_window(self) -> None:
        some = self.both()
        usage = some.usage()
        assert usage == {1: Usage(100, 0), 2: Usage(1, 0)}
        assert some.capacity(some[1], 100, 64, usage) == 1
        assert some.capacity(some[200], 100, 64, usage) == 64 // 3

    def test_many_with_one_consumer_each_fill_it_but_for_the_reserve(self) -> None:
        some, free = Lanes(64, POLICY), 64
        for key in range(20):
            filled(some.of(key, system=key))
        for lane in some:
            count = max(0, some.capacity(lane, 100, free, some.usage()))
            lane.in_flight += count
            free -= count
        assert free <= 64 // lanes.RESERVE

    def test_consumers_that_hang_leave_a_place_for_another_system(self) -> None:
        some = self.both()
        free = 64
        for lane in [lane for lane in some if lane.system == 1]:
            if some.capacity(lane, 100, free, some.usage()) > 0:
                lane.in_flight += 1
                free -= 1
        assert free > 0
        assert some.capacity(some[200], 100, free, some.usage()) == 1

    def test_a_busy_one_leaves_more_than_one_request_to_another(self) -> None:
        """The other's consumer has half of what is kept for its system; so there is a place left
        for the first request of that system's next one."""
        some = Lanes(1024, POLICY)
        for key in range(1, 1001):
            filled(some.of(key, system=1)).in_flight = 1
        lane = filled(some.of(2000, system=2))
        free = 1024 - 1000
        next_lane = filled(some.of(2001, system=2))
        for in_flight, capacity in ((0, 8), (1, 7), (7, 1), (8, 0)):
            lane.in_flight = in_flight
            assert some.capacity(lane, 100, free, some.usage()) == capacity
        assert some.capacity(next_lane, 100, free - 8, some.usage()) == 1
        assert some.capacity(some[1], 100, free, some.usage()) <= 0

    def test_are_forgotten_with_their_lanes(self) -> None:
        some = self.both()
        some[200].waiting.clear()
        some.drop_idle(time.monotonic())
        assert {lane.system for lane in some.ready()} == {1}
        assert some.of(200, system=2).system == 2


class TestRate:
    def subscription(self, rate: float) -> Any:
        class _Subscription:
            rate_limit = rate
            in_flight_limit = 32

        return _Subscription()

    def test_allows_what_is_due(self) -> None:
        lane = filled(Lane(1, POLICY, None))
        lane.adapt(self.subscription(2.0), 100.0)
        assert lane.allowance(100.0) == 1
        lane.sent(100.0, 1)
        assert lane.allowance(100.4) == 0
        assert lane.allowance(100.5) == 1

    def test_takes_over_from_another_sender_with_a_pause(self) -> None:
        lane = filled(Lane(1, POLICY, LaneState(sender="other")))
        lane.adapt(self.subscription(2.0), 100.0)
        assert lane.allowance(100.4) == 0
        assert lane.allowance(100.5) == 1

    def test_next_wait_is_the_first_paced_lane_with_work(self) -> None:
        some = Lanes(64, POLICY)
        for key, rate in ((1, 1.0), (2, 10.0), (3, 0.0)):
            lane = filled(some.of(key))
            lane.adapt(self.subscription(rate), 100.0)
            lane.sent(100.0, 1)
        assert some.next_wait(100.0) == pytest.approx(0.1)

    def test_an_idle_lane_is_dropped_when_its_pace_is_over(self) -> None:
        some = Lanes(64, POLICY)
        lane = some.of(1)
        lane.adapt(self.subscription(1.0), 100.0)
        lane.sent(100.0, 1)
        lane.answered(200, 100.1, 100.0)
        some.drop_idle(100.2)
        assert list(some) == [lane], "a new lane would forget the last request"
        some.drop_idle(101.1)
        assert list(some) == []


def test_measured_rate_is_known_only_while_there_is_always_work() -> None:
    lane = filled(Lane(1, POLICY, None))
    start = lane._measured_at
    lane.measure(start + 1)
    for _ in range(20):
        lane.sent(start + 1, 1)
        lane.answered(200, start + 1, start + 1)
    lane.measure(start + 2)
    assert lane.per_second > 0
    lane.waiting.clear()
    lane.in_flight = 0
    lane.measure(start + 3)
    assert lane.per_second > 0, "a gap between two orders"
    assert not lane.is_over(start + 3)
    lane.measure(start + 13)
    assert lane.per_second == 0
    assert lane.is_over(start + 13)


def test_a_lane_is_busy_since_its_slots_are_full() -> None:
    lane = filled(Lane(1, POLICY, None))
    start = lane._measured_at
    for second in range(1, 31):
        lane.sent(start + second, 1)
        lane.answered(200, start + second, start + second)
        lane.measure(start + second)
    said = lane.live("me", start + 30)
    assert 29 <= said.busy_for <= 31
    assert 0.9 <= said.busy_per_second <= 1.1
