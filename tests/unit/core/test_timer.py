"""A timer on a clock that the test holds."""

import time

import pytest

from msgplatform.core.daemons.timer import Every, Gather, work_on_some


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


def test_it_is_due_at_once_and_then_when_its_seconds_are_over(clock: Clock) -> None:
    timer = Every(5.0)
    assert [timer.take(), timer.take()] == [True, False]
    clock.now += 4.9
    assert not timer.take()
    clock.now += 0.1
    assert [timer.take(), timer.take()] == [True, False]


def test_work_ends_when_its_time_is_over_and_begins_elsewhere_the_next_time(clock: Clock) -> None:
    calls = list[str]()

    def work(item: str) -> int:
        calls.append(item)
        clock.now += 0.125
        return 2

    for seconds in (0.0, 0.0, 0.375, 1.0):
        count = work_on_some(work, "abcd", clock.now + seconds)
        calls.append(str(count))
    assert "".join(calls) == "a2b2cda6bcda8"
    assert work_on_some(work, "", clock.now) == 0


def test_looking_changes_nothing() -> None:
    timer = Every(5.0)
    assert [timer.is_due, timer.is_due] == [True, True]


def test_a_late_look_does_not_make_up_for_those_before(clock: Clock) -> None:
    timer = Every(5.0)
    timer.take()
    clock.now += 100
    assert [timer.take(), timer.take()] == [True, False]


def test_restarted_and_at_once(clock: Clock) -> None:
    timer = Every(5.0)
    timer.restart()
    assert not timer.is_due
    clock.now += 4
    timer.restart()
    clock.now += 4
    assert not timer.is_due
    timer.at_once()
    assert timer.take()


def come(clock: Clock, gather: Gather, rate: float, full: int, seconds: float) -> list[int]:
    """Sizes of the batches when items come at this rate for so long."""
    sizes, begun, taken = [], clock.now, 0.0
    while clock.now < begun + seconds:
        arrived = int((clock.now - begun) * rate - taken)
        size = min(full, arrived)
        taken += size
        sizes.append(size)
        clock.now += max(0.005, gather.note_batch(size))
    return sizes


def test_under_load_batches_become_full(clock: Clock) -> None:
    gather = Gather(500, 0.05)
    assert gather.is_due
    assert come(clock, gather, 2000, 500, 5.0)[-3:] == [100, 100, 100]


def test_a_wait_is_as_long_as_the_last_batch_was_large(clock: Clock) -> None:
    gather = Gather(500, 0.05, per_item=0.0002)
    come(clock, gather, 1000, 500, 5.0)
    assert gather.note_batch(100) == pytest.approx(0.02)
    assert not gather.is_due
    assert gather.note_batch(400) == 0.05


def test_what_comes_seldom_is_taken_at_once(clock: Clock) -> None:
    gather = Gather(500, 0.05)
    assert max(come(clock, gather, 100, 500, 5.0)) == 1


def test_a_backlog_is_not_waited_for(clock: Clock) -> None:
    gather = Gather(10, 0.05)
    come(clock, gather, 1000, 10, 5.0)
    assert gather.note_batch(10) == 0
    assert gather.is_due, "there is more"
    assert gather.note_batch(0) == 0
    assert gather.is_due, "what comes to an idle step is taken at once"


def test_a_rush_that_is_over_is_soon_forgotten(clock: Clock) -> None:
    gather = Gather(500, 0.05)
    come(clock, gather, 2000, 500, 5.0)
    clock.now += 3
    assert gather.note_batch(1) == 0
