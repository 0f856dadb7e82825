"""The breaker: when it opens, how long it stays open, one probe at a time, stale results."""

import random

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from msgplatform.core.rates.breaker import Breaker, Policy, State
from tests.program_host import IS_FULL

EXACT = Policy(jitter=0)


def opened(policy: Policy = EXACT, at: float = 0.0) -> Breaker:
    breaker = Breaker(policy)
    for _ in range(policy.failures_in_a_row):
        breaker.failure(at)
    assert breaker.state is State.OPEN
    return breaker


def test_opens_after_failures_in_a_row_and_not_before() -> None:
    breaker = Breaker(EXACT)
    for _ in range(4):
        breaker.failure(0)
    breaker.success(0)
    for _ in range(4):
        breaker.failure(1)
        assert breaker.state is State.CLOSED
        assert breaker.allow(1)
    breaker.failure(1)
    assert breaker.state is State.OPEN
    assert not breaker.allow(1)


def test_opens_on_the_share_of_failures_though_never_many_in_a_row() -> None:
    breaker = Breaker(EXACT)
    for second in range(9):
        breaker.success(second)
        breaker.failure(second)
    assert breaker.state is State.CLOSED  # 18 results are too few to judge by
    breaker.success(9)
    breaker.failure(9)
    assert breaker.state is State.OPEN


def test_a_share_that_is_low_enough_keeps_it_closed() -> None:
    breaker = Breaker(EXACT)
    for second in range(300):
        breaker.failure(second)
        breaker.success(second)
        breaker.success(second)
    assert breaker.state is State.CLOSED


def test_results_that_left_the_window_do_not_count() -> None:
    breaker = Breaker(Policy(failures_in_a_row=1000, jitter=0))
    for _ in range(19):
        breaker.failure(0)
    breaker.failure(100)
    assert breaker.state is State.CLOSED


def test_a_success_of_the_probe_closes() -> None:
    breaker = opened()
    assert not breaker.allow(4.9)
    assert breaker.wait(3) == 2
    assert breaker.allow(5)
    assert breaker.state is State.HALF_OPEN
    breaker.success(5.5, start=5)
    assert breaker.state is State.CLOSED
    assert breaker.wait(5.5) == 0


def test_each_failed_probe_opens_for_longer_up_to_the_cap() -> None:
    breaker = opened()
    now, pauses = 0.0, []
    for _ in range(9):
        pause = breaker.wait(now)
        pauses.append(pause)
        now += pause
        assert breaker.allow(now)
        breaker.failure(now)
    assert pauses == [5, 10, 20, 40, 80, 160, 300, 300, 300]


def test_the_growth_ends_when_it_closed() -> None:
    breaker = opened()
    breaker.allow(5)
    breaker.failure(5)
    breaker.allow(15)
    breaker.success(15)
    for _ in range(5):
        breaker.failure(16)
    assert breaker.wait(16) == 5


def test_the_open_time_is_jittered() -> None:
    pauses = set()
    random.seed(7)
    for _ in range(100):
        breaker = Breaker(Policy(failures_in_a_row=1))
        breaker.failure(0)
        pauses.add(breaker.wait(0))
    assert min(pauses) >= 4
    assert max(pauses) <= 6
    assert len(pauses) == 100


def test_what_was_in_flight_when_it_opened_changes_nothing() -> None:
    breaker = opened(at=10.0)
    for _ in range(50):  # timeouts of calls that began before
        breaker.failure(14, start=9.9)
    assert breaker.wait(10) == 5
    assert breaker.allow(15)
    breaker.failure(15.1, start=9.9)
    breaker.success(15.1, start=9.9)
    assert breaker.state is State.HALF_OPEN
    breaker.success(15.2, start=15)
    for _ in range(50):
        breaker.failure(16, start=9.9)
    assert breaker.state is State.CLOSED


def test_a_probe_that_never_answers_is_replaced() -> None:
    breaker = opened()
    assert breaker.allow(5)
    assert not breaker.allow(64.9)
    assert breaker.allow(65)
    breaker.success(66, start=5)  # the first probe's, far too late
    assert breaker.state is State.HALF_OPEN


def test_years_of_failures_do_not_overflow() -> None:
    breaker = opened()
    now = 0.0
    for _ in range(5000):
        now += breaker.wait(now)
        assert breaker.allow(now)
        breaker.failure(now)
    assert breaker.wait(now) == 300


class BreakerModel(RuleBasedStateMachine):
    """Calls, results in any order and time that passes, against what must always hold."""

    @initialize(seed=st.integers(0, 1000))
    def start(self, seed: int) -> None:
        self.policy = Policy(failures_in_a_row=3, min_results=6, window=10, probe_timeout=30)
        random.seed(seed)
        self.breaker = Breaker(self.policy)
        self.now = 0.0
        self.running: list[float] = []
        self.probes: list[float] = []  # starts of probes since it was last closed or opened

    @rule(seconds=st.floats(0, 400))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def call(self) -> None:
        before = self.breaker.state
        promised = self.breaker.wait(self.now)
        allowed = self.breaker.allow(self.now)
        assert allowed == (promised == 0)
        if not allowed:
            assert before is not State.CLOSED
            return
        if before is not State.CLOSED:
            # Exactly one probe at a time: the one before was given up.
            assert all(self.now - probe >= self.policy.probe_timeout for probe in self.probes)
            self.probes.append(self.now)
            assert self.breaker.state is State.HALF_OPEN
        self.running.append(self.now)

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 1000), went_well=st.booleans())
    def result(self, which: int, went_well: bool) -> None:
        started = self.running.pop(which % len(self.running))
        before = self.breaker.state
        report = self.breaker.success if went_well else self.breaker.failure
        report(self.now, started)
        after = self.breaker.state
        if after is not before:
            self.probes.clear()
        if before is State.OPEN:
            assert after is State.OPEN
        if after is State.CLOSED and before is not State.CLOSED:
            assert went_well
            assert before is State.HALF_OPEN
        if after is State.OPEN and before is not State.OPEN:
            assert not went_well
            pause = self.breaker.wait(self.now)
            assert self.policy.first * 0.8 <= pause <= self.policy.cap * 1.2

    @invariant()
    def the_way_out_is_always_near(self) -> None:
        if hasattr(self, "breaker"):
            assert 0 <= self.breaker.wait(self.now) <= self.policy.cap * 1.2

    @invariant()
    def closed_means_no_long_row(self) -> None:
        if hasattr(self, "breaker") and self.breaker.state is State.CLOSED:
            assert self.breaker.allow(self.now)
            assert self.breaker.opened_in_a_row == 0


def test_invariants() -> None:
    run_state_machine_as_test(
        BreakerModel,
        settings=settings(
            max_examples=150 if IS_FULL else 50, stateful_step_count=60, deadline=None
        ),
    )


@given(
    results=st.lists(st.tuples(st.floats(0, 20), st.booleans()), max_size=200),
    policy=st.builds(
        Policy,
        failures_in_a_row=st.integers(1, 10),
        failure_share=st.floats(0.1, 1),
        min_results=st.integers(1, 30),
        window=st.floats(1, 100),
        jitter=st.just(0.0),
    ),
)
def test_opens_exactly_when_the_policy_says(
    results: list[tuple[float, bool]], policy: Policy
) -> None:
    """Against a second calculation from the whole list, in tenths of the window as documented."""
    breaker = Breaker(policy)
    now, seen = 0.0, []
    for pause, went_well in results:
        now += pause
        seen.append((int(now * 10 // policy.window), went_well))
        (breaker.success if went_well else breaker.failure)(now)
        inside = [well for part, well in seen if part > seen[-1][0] - 10]
        row = seen[-policy.failures_in_a_row :]
        in_a_row = len(row) == policy.failures_in_a_row and not any(well for _, well in row)
        failed = inside.count(False)
        too_many = len(inside) >= policy.min_results and (
            failed >= policy.failure_share * len(inside)
        )
        assert (breaker.state is State.OPEN) == (not went_well and (in_a_row or too_many))
        if breaker.state is State.OPEN:
            return


@pytest.mark.parametrize("state", list(State))
def test_states_print_as_words(state: State) -> None:
    assert f"{state}" in {"closed", "open", "half-open"}
