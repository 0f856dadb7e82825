"""A timer on a clock that the test holds."""

from __future__ import annotations

from msgplatform.core.daemons.gather import Gather
from msgplatform.core.daemons.timer import Every


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_it_is_due_at_once_and_then_when_its_seconds_are_over() -> None:
    clock = Clock()
    timer = Every(5.0, clock)
    assert [timer.take(), timer.take()] == [True, False]
    clock.now += 4.9
    assert not timer.take()
    clock.now += 0.1
    assert [timer.take(), timer.take()] == [True, False]


def test_looking_changes_nothing() -> None:
    timer = Every(5.0, Clock())
    assert [timer.is_due, timer.is_due] == [True, True]


def test_a_late_look_does_not_make_up_for_those_before() -> None:
    clock = Clock()
    timer = Every(5.0, clock)
    timer.take()
    clock.now += 100
    assert [timer.take(), timer.take()] == [True, False]


def test_restarted_and_at_once() -> None:
    clock = Clock()
    timer = Every(5.0, clock)
    timer.restart()
    assert not timer.is_due
    clock.now += 4
    timer.restart()
    clock.now += 4
    assert not timer.is_due
    timer.at_once()
    assert timer.take()


def test_a_batch_waits_for_company_only_when_it_was_not_full() -> None:
    clock = Clock()
    gather = Gather(10, 0.5, clock)
    assert gather.is_due
    gather.took(10)
    assert gather.is_due, "there is more"
    gather.took(3)
    assert not gather.is_due
    clock.now += 0.5
    assert gather.is_due
    gather.took(0)
    assert gather.is_due, "what comes to an idle step is taken at once"
