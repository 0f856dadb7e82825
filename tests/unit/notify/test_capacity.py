"""Capacity: what each subscription may get queued, from depths and what senders report."""

from dataclasses import replace

import pytest
from pytest_django import Settings

from msgplatform.core.rates.breaker import State
from notify import orders
from notify.directory import Subscription
from notify.maker.capacity import BEYOND_TOTAL_BYTES, ORDERS_IN_TOTAL, Capacity, Offer
from notify.presence import LaneState

FULL = Offer(orders.MAX_ITEMS, orders.MAX_BYTES)
SUBSCRIPTION = Subscription(
    id=1, biz_id=1, queue="notify-1-1", status=0, url="http://x", keys=(), header_prefix="webhook",
    headers=(), networks=(), timeout=15, schedule=(), in_flight_limit=32, rate_limit=0.0,
    failing_since=None,
)  # fmt: skip


@pytest.fixture(autouse=True)
def lease(settings: Settings) -> None:
    settings.NOTIFY_LEASE_SECONDS = 120


def offers(capacity: Capacity, subscription: Subscription) -> list[Offer]:
    found: list[Offer] = []
    while (offer := capacity.offer(subscription)) and len(found) < 10:
        found.append(offer)
        capacity.take(subscription)
    return found


def test_four_orders_for_each() -> None:
    other = replace(SUBSCRIPTION, id=2, queue="notify-1-2")
    capacity = Capacity({"notify-1-1": 1}, {})
    assert offers(capacity, SUBSCRIPTION) == [FULL] * 3
    assert offers(capacity, other) == [FULL] * 4


def test_what_is_left_in_total_is_given_out_once() -> None:
    """One place left is one order, not four; a first order beyond it is a small one."""
    capacity = Capacity({"notify-1-9": ORDERS_IN_TOTAL - 1}, {})
    assert offers(capacity, SUBSCRIPTION) == [FULL]
    other = replace(SUBSCRIPTION, id=2, queue="notify-1-2")
    assert offers(capacity, other) == [Offer(orders.MAX_ITEMS, BEYOND_TOTAL_BYTES)]


def test_large_messages_beyond_the_total_are_few_in_a_turn() -> None:
    small, large = Offer(orders.MAX_ITEMS, BEYOND_TOTAL_BYTES), 256 * 1024
    capacity = Capacity({}, {})
    admitted = sum(capacity.admits(small, large) for _ in range(1000))
    assert 16 <= admitted <= 128
    assert capacity.admits(small, BEYOND_TOTAL_BYTES)
    assert capacity.admits(FULL, large)


def test_what_one_system_uses_up_is_not_missing_for_another() -> None:
    capacity = Capacity({"notify-9-9": ORDERS_IN_TOTAL}, {})
    assert offers(capacity, SUBSCRIPTION) == [FULL] * 4
    nine = replace(SUBSCRIPTION, id=9, biz_id=9, queue="notify-9-8")
    assert offers(capacity, nine) == [Offer(orders.MAX_ITEMS, BEYOND_TOTAL_BYTES)]


@pytest.mark.parametrize(
    ("rate_limit", "measured", "items", "count"),
    [
        (0, 0, 500, 4),
        (2.0, 0, 15, 4),
        (2.0, 100.0, 15, 4),
        (0, 4.0, 30, 4),
        (8.0, 2.0, 15, 4),
        (0.1, 0, 1, 3),  # 12 messages a lease: three may wait
        (0.01, 0, 1, 1),
        (1000.0, 0, 500, 4),
    ],
)
def test_no_more_is_queued_than_is_sent_in_a_quarter_of_a_lease(
    rate_limit: float, measured: float, items: int, count: int
) -> None:
    known = {1: LaneState(sender="s", per_second=measured)} if measured else {}
    made = offers(Capacity({}, known), replace(SUBSCRIPTION, rate_limit=rate_limit))
    assert [offer.items for offer in made] == [items] * count


def test_a_consumer_that_became_slow_gets_no_more_until_it_has_caught_up() -> None:
    known = {1: LaneState(sender="s", per_second=1.0, waiting=400)}
    assert offers(Capacity({"notify-1-1": 1}, known), SUBSCRIPTION) == []


@pytest.mark.parametrize("state", [State.OPEN, State.HALF_OPEN])
@pytest.mark.parametrize(("depth", "retry_in", "probes"), [(0, 0.0, 1), (0, 1.0, 0), (1, 0.0, 0)])
def test_behind_an_open_breaker_there_is_room_for_one_probe(
    state: State, depth: int, retry_in: float, probes: int
) -> None:
    known = {1: LaneState(sender="s", breaker=state, retry_in=retry_in)}
    made = offers(Capacity({"notify-1-1": depth}, known), SUBSCRIPTION)
    assert [offer.items for offer in made] == [1] * probes


@pytest.mark.parametrize(
    ("sizes", "max_items", "fitting"),
    [([], 5, 0), ([50, 50, 1], 5, 2), ([500, 1], 5, 1), ([1] * 9, 5, 5), ([60, 60], 5, 1)],
)
def test_an_order_has_at_least_one_item(sizes: list[int], max_items: int, fitting: int) -> None:
    assert orders.fitting(sizes, max_items, 100) == fitting
