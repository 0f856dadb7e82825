"""The scheduler's arithmetic, with a simulated clock and a simulated server."""

from collections.abc import Callable
from datetime import datetime

import pytest

from notify.feed.dispatcher.pace import (
    Cause,
    Effort,
    Load,
    Meter,
    Pace,
    Targets,
    divide,
    load_of,
    max_share_at,
    next_share,
    pace_of,
    parse_hours,
)

TARGETS = Targets(statements=1.0, latency=1.5, cpu=0.9)
OWN, OTHER, ANOTHER = 11, 21, 22


class Server:
    """Two cores; what others and the dispatchers want of them makes each statement slower."""

    def __init__(self) -> None:
        self.now = 0.0
        self.others = 0.0  # cores
        self.meter = Meter(clock=lambda: self.now)

    def second(self, share: float) -> Load:
        wanted = self.others + share
        for step in range(20):
            self.now += 0.05
            somebody = step < round(20 * self.others / 2)
            self.meter.add(0.001 * max(1.0, wanted / 2), {OWN} | ({OTHER} if somebody else set()))
        measured = self.meter.load({OWN})
        assert measured
        return Load(measured.latency, measured.baseline, measured.statements, min(1.0, wanted / 2))


def shares(server: Server, seconds: int, share: float, least: float = 0.1) -> list[float]:
    found = []
    for _ in range(seconds):
        load, cause = load_of(server.second(share), TARGETS)
        share = next_share(share, load, least, 1.0, cause == Cause.NONE)
        found.append(share)
    return found


def test_full_speed_when_nobody_else_works() -> None:
    assert shares(Server(), 20, share=0.1)[-1] == 1.0


def test_it_steps_aside_within_seconds_and_comes_back() -> None:
    server = Server()
    shares(server, 5, share=1.0)
    server.others = 2.2
    assert shares(server, 5, share=1.0)[-1] == 0.1
    server.others = 0.0
    back = shares(server, 30, share=0.1)
    assert min(back) >= 0.1
    assert back[-1] == 1.0
    assert next(second for second, share in enumerate(back) if share >= 0.9) < 25


def test_it_finds_what_a_busy_server_has_to_spare() -> None:
    """Others take three fifths of the machine: what is left is used, in small steps."""
    server = Server()
    shares(server, 5, share=0.5)
    server.others = 1.2
    settled = shares(server, 120, share=1.0)[20:]
    assert min(settled) >= 0.1
    assert max(settled) < 0.7
    assert 0.2 < sum(settled) / len(settled) < 0.6


def test_a_late_queue_keeps_more_and_the_hours_have_the_last_word() -> None:
    assert next_share(0.1, load=5.0, min_share=0.2, max_share=1.0) == 0.2
    assert next_share(1.0, load=0.0, min_share=0.1, max_share=0.3) == 0.3
    assert next_share(0.5, load=0.9, min_share=0.1, max_share=1.0) == 0.5


def test_batches_follow_the_share() -> None:
    assert pace_of(1.0) == Pace(100, 1.0)
    assert pace_of(0.5) == Pace(50, 0.5)
    assert pace_of(0.02).events == 40


def test_pauses_leave_a_share_of_the_time_until_the_cost_of_work_is_known() -> None:
    effort = Effort()
    assert effort.pause(1.0, 100, 0.05) == 0.0
    assert effort.pause(0.1, 10, 0.01) == pytest.approx(0.09)


def test_pauses_leave_a_share_of_the_work_on_a_busy_machine() -> None:
    effort = Effort()
    effort.learn(100, 0.1)
    assert effort.pause(0.1, 10, 0.01) == pytest.approx(0.09)
    assert effort.pause(0.1, 10, 0.05) == pytest.approx(0.05)  # 10 in a tenth of a second
    assert effort.pause(0.1, 10, 0.5) == 0.0
    assert effort.pause(0.1, 1000, 0.01) == pytest.approx(0.09)  # of what is quicker, the time
    for _ in range(20):
        effort.learn(100, 0.2)  # others are there already, and the share is about to fall
    assert effort.pause(0.1, 100, 0.11) == pytest.approx(1.0, abs=0.1)


def test_a_batch_that_froze_does_not_lower_the_share() -> None:
    effort = Effort()
    effort.learn(100, 0.1)
    effort.learn(100, 60.0)
    assert effort.pause(0.1, 10, 0.01) == pytest.approx(0.09, abs=0.001)
    assert effort.pause(0.1, 10, 0.05) == pytest.approx(0.05, abs=0.001)


def test_after_a_start_beside_others_the_share_is_one_of_the_work_too() -> None:
    effort = Effort()
    effort.learn(100, 0.1, is_undisturbed=False)
    assert effort.pause(0.1, 10, 0.05) == pytest.approx(0.05)
    for _ in range(100):
        effort.learn(100, 0.05)
    for _ in range(100):
        effort.learn(100, 0.01, is_undisturbed=False)  # of cheaper work
    assert effort.pause(0.1, 10, 0.01) == pytest.approx(0.04, abs=0.001)


def test_batches_become_larger_when_the_share_is_not_reached() -> None:
    effort, pace = Effort(), pace_of(0.1)
    effort.learn(100, 0.1)
    assert effort.events(pace) == 40
    for _ in range(20):
        effort.pause(pace.share, 40, 0.5)
    assert effort.events(pace) == 100
    for _ in range(20):
        effort.pause(pace.share, 100, 0.1)
    assert effort.events(pace) == 40


def test_nobody_there_is_a_reason_to_hurry() -> None:
    assert next_share(0.5, 0.0, 0.1, 1.0, is_alone=True) == 0.6
    assert next_share(0.5, 0.0, 0.1, 1.0) == 0.52


def test_latency_and_processors_count_only_while_others_work() -> None:
    alone = Load(latency=0.02, baseline=0.001, statements=0.0, cpu=1.0)
    assert load_of(alone, TARGETS) == (0.0, Cause.NONE)
    not_alone = Load(latency=0.003, baseline=0.001, statements=0.2, cpu=0.5)
    assert load_of(not_alone, TARGETS) == (2.0, Cause.LATENCY)
    assert load_of(Load(0.001, 0.001, 0.2, 0.9), TARGETS) == (1.0, Cause.CPU)
    assert load_of(Load(0.001, 0.001, 3.0, 0.9), TARGETS) == (3.0, Cause.STATEMENTS)


@pytest.fixture
def clock() -> Callable[[], float]:
    moments = iter(range(10_000))
    return lambda: float(next(moments)) / 20


def test_the_meter_tells_own_statements_from_those_of_others(clock: Callable[[], float]) -> None:
    meter = Meter(clock=clock)
    assert meter.load(()) is None
    for _ in range(10):
        meter.add(0.002, {OWN})
        meter.add(0.004, {OWN, OTHER, ANOTHER})
    measured = meter.load({OWN})
    assert measured
    assert measured.statements == 1.0
    assert 0.002 <= measured.latency <= 0.004


def test_the_baseline_is_the_lowest_of_ten_minutes() -> None:
    now = 0.0
    meter = Meter(baseline=0.001, clock=lambda: now)
    meter.add(0.003, ())
    measured = meter.load(())
    assert measured
    assert (measured.latency, measured.baseline) == (0.003, 0.001)
    now = 601.0
    meter.add(0.004, ())
    later = meter.load(())
    assert later
    assert later.baseline == 0.004


def test_hours() -> None:
    rules = parse_hours("19-23:0.3, 22-6:0.5,")

    def most(hour: int) -> float:
        return max_share_at(rules, datetime(2026, 3, 1, hour, 59))  # noqa: DTZ001

    assert [most(hour) for hour in (18, 19, 22, 23, 0, 5, 6)] == [1, 0.3, 0.3, 0.5, 0.5, 0.5, 1]
    assert max_share_at(parse_hours("0-24:0.2"), datetime(2026, 3, 1, 0)) == 0.2  # noqa: DTZ001


@pytest.mark.parametrize("text", ["19-23", "7-7:1", "25-3:1", "1-25:1", "1-2:0", "1-2:1.1", "x"])
def test_wrong_hours_are_named(text: str) -> None:
    with pytest.raises(ValueError, match=text):
        parse_hours(text)


@pytest.mark.parametrize(
    ("share", "dispatchers", "count", "each"),
    [(1.0, 2, 2, 1.0), (0.5, 2, 1, 1.0), (0.12, 2, 1, 0.24), (0.6, 2, 2, 0.6), (0.1, 1, 1, 0.1),
     (0.15, 10, 2, 0.75), (0.5, 0, 1, 0.0)],
)  # fmt: skip
def test_as_few_dispatchers_as_possible_work(
    share: float, dispatchers: int, count: int, each: float
) -> None:
    names = [f"d{n}" for n in range(dispatchers)]
    at_work, of_each = divide(share, names, 0)
    assert len(at_work) == min(count, dispatchers)
    assert of_each == pytest.approx(each)
    assert len(set(at_work)) == len(at_work)
    turns = [divide(share, names, turn)[0] for turn in range(dispatchers)]
    assert {name for turn in turns for name in turn} == set(names)
