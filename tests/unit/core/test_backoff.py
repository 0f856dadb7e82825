"""Pauses: the schedule is followed, jitter stays in its bounds, loops start again after work."""

import random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from msgplatform.core.rates.backoff import Backoff, delay

SCHEDULE = [5, 300, 1800, 7200]


def test_the_schedule_is_followed_and_its_last_entry_repeats() -> None:
    pauses = [delay(attempt, SCHEDULE, jitter=0) for attempt in range(1, 8)]
    assert pauses == [5, 300, 1800, 7200, 7200, 7200, 7200]


@given(
    attempt=st.integers(1, 1000),
    schedule=st.lists(st.floats(0, 1e6), min_size=1, max_size=20),
    jitter=st.floats(0, 1),
    seed=st.integers(),
)
def test_jitter_stays_within_its_share(
    attempt: int, schedule: list[float], jitter: float, seed: int
) -> None:
    exact = delay(attempt, schedule, jitter=0)
    random.seed(seed)
    pause = delay(attempt, schedule, jitter)
    assert exact * (1 - jitter) <= pause <= exact * (1 + jitter) * 1.000001


def test_jitter_spreads_what_failed_together() -> None:
    random.seed(7)
    pauses = [delay(1, [100.0], 0.2) for _ in range(1000)]
    tenths = {int((pause - 80) / 4) for pause in pauses}
    assert tenths == set(range(10))  # the whole range from 80 to 120 is used


@given(
    first=st.floats(0.001, 1),
    factor=st.floats(1, 3),
    cap=st.floats(1, 100),
    turns=st.integers(1, 60),
)
def test_a_loop_slows_down_to_the_cap_and_starts_again_after_work(
    first: float, factor: float, cap: float, turns: int
) -> None:
    backoff = Backoff(first, factor, cap, jitter=0)
    pauses = [backoff.next() for _ in range(turns)]
    assert pauses[0] == first
    assert pauses == sorted(pauses)
    assert pauses[-1] <= cap
    backoff.reset()
    assert backoff.next() == first


def test_a_loop_reaches_its_cap_and_never_leaves_the_jitter() -> None:
    random.seed(1)
    backoff = Backoff(0.1, 1.15, 1.0, jitter=0.2)
    pauses = [backoff.next() for _ in range(100)]
    assert max(pauses) <= 1.2
    assert min(pauses[40:]) >= 0.8
    assert len(set(pauses[40:])) > 1


@pytest.mark.parametrize(
    "wrong", [{"first": 0}, {"first": 2, "cap": 1}, {"factor": 0.5}, {"jitter": 1.5}]
)
def test_a_backoff_that_would_not_wait_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="backoff needs"):
        Backoff(**wrong)
