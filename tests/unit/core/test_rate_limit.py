"""The rate limit, on a clock that the test holds."""

import math

from hypothesis import given, strategies as st

from msgplatform.core.rates.rate_limit import BURST_SECONDS, RateLimit


def test_no_limit_lets_everything_go() -> None:
    limit = RateLimit(0)
    assert limit.allowance(1.0) == math.inf
    limit.take(1.0, 1000)
    assert limit.wait(1.0) == 0.0
    assert limit.is_idle(1.0)


@given(
    rate=st.floats(0.05, 5000),
    looks=st.lists(st.floats(0.0, 3.0), min_size=1, max_size=200),
    greed=st.integers(1, 500),
)
def test_no_stretch_of_time_holds_more_than_rate_and_burst(
    rate: float, looks: list[float], greed: int
) -> None:
    """Whatever the caller's rhythm: between any two calls lie as many as the rate allows."""
    limit, now = RateLimit(rate), 100.0
    calls: list[float] = []
    for pause in looks:
        now += pause
        count = int(min(greed, limit.allowance(now)))
        if count:
            limit.take(now, count)
            calls += [now] * count
    for first in range(0, len(calls), max(1, len(calls) // 50)):
        for last in range(first, len(calls), max(1, len(calls) // 50)):
            stretch = calls[last] - calls[first]
            assert last - first + 1 <= rate * stretch + limit.burst + 1e-3


@given(rate=st.floats(0.05, 5000))
def test_a_patient_caller_gets_the_whole_rate(rate: float) -> None:
    """Waiting as long as it says is enough, and no time is lost by it."""
    limit, now = RateLimit(rate), 0.0
    for _ in range(50):
        now += limit.wait(now)
        assert limit.allowance(now) >= 1
        limit.take(now)
    assert now <= 50 / rate + 1e-6


def test_burst_is_what_falls_due_between_two_looks() -> None:
    assert RateLimit(1000).burst == 1000 * BURST_SECONDS
    assert RateLimit(3).burst == 1


def test_hold_keeps_the_distance_to_somebody_elses_call() -> None:
    limit = RateLimit(2.0)
    limit.hold(10.0)
    assert limit.allowance(10.4) == 0
    assert limit.allowance(10.5) == 1


def test_change_keeps_what_was_sent() -> None:
    limit = RateLimit(1.0)
    limit.take(0.0)
    limit.change(10.0)
    assert limit.allowance(0.5) == 0, "the last call was at the old rate"
    assert limit.allowance(1.0) == 1


def test_is_idle_when_a_new_one_would_do_the_same() -> None:
    limit = RateLimit(2.0)
    limit.take(0.0)
    assert not limit.is_idle(0.4)
    assert limit.is_idle(0.5)
