"""What a process knows of the database stays while that is unavailable, and is never too old."""

import threading
import time

import pytest
from django.db.utils import OperationalError

from msgplatform.core.daemons import bounded_call
from msgplatform.core.daemons.snapshot import MISS_SECONDS, Snapshot


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Numbers(Snapshot[list[int]]):
    """Counts its loads; `trouble` is raised instead."""

    def __init__(self) -> None:
        super().__init__([], 2.0)
        self.loads = 0
        self.trouble: Exception | None = None

    def load(self) -> list[int]:
        self.loads += 1
        if self.trouble:
            raise self.trouble
        return [self.loads]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


@pytest.fixture
def numbers(clock: Clock) -> Numbers:
    return Numbers()


def test_it_is_loaded_when_it_is_due(numbers: Numbers, clock: Clock) -> None:
    numbers.refresh()
    numbers.refresh()
    clock.now += 1.9
    numbers.refresh()
    assert numbers.known == [1]
    clock.now += 0.2
    numbers.refresh()
    assert numbers.known == [2]


def test_on_demand_it_is_loaded_at_once(numbers: Numbers) -> None:
    numbers.refresh()
    numbers.refresh(at_once=True)
    assert numbers.known == [2]


def test_after_a_change_of_this_process_it_is_loaded_once(numbers: Numbers) -> None:
    numbers.refresh()
    Snapshot.expire_all()
    assert not numbers.is_fresh
    numbers.refresh()
    numbers.refresh()
    assert numbers.known == [2]


def test_what_is_missing_is_looked_for_once_in_a_while(numbers: Numbers, clock: Clock) -> None:
    numbers.refresh()
    assert numbers.refresh_after_miss()
    assert numbers.known == [2]
    for _ in range(100):
        assert not numbers.refresh_after_miss()
    assert numbers.loads == 2
    clock.now += MISS_SECONDS
    numbers.trouble = OperationalError("gone")
    assert not numbers.refresh_after_miss()
    assert (numbers.known, numbers.loads) == ([2], 3)
    numbers.trouble = None
    clock.now += MISS_SECONDS
    assert numbers.refresh_after_miss()
    assert numbers.known == [4]


def test_what_is_known_stays_while_the_database_is_unavailable(
    numbers: Numbers, clock: Clock
) -> None:
    numbers.refresh()
    numbers.trouble = OperationalError("gone")
    clock.now += 3
    numbers.refresh()
    numbers.refresh(at_once=True)
    assert (numbers.known, numbers.loads) == ([1], 3)
    numbers.trouble = None
    numbers.refresh()
    assert numbers.loads == 3, "not asked again before its time"
    clock.now += 3
    numbers.refresh()
    assert numbers.known == [4]


def test_nothing_is_never_taken_for_what_is_there(numbers: Numbers) -> None:
    """Until something was loaded, each call asks and raises."""
    numbers.trouble = OperationalError("gone")
    for _ in range(3):
        with pytest.raises(OperationalError):
            numbers.refresh()
    numbers.trouble = None
    numbers.refresh()
    assert numbers.known == [4]


def test_what_is_no_fault_of_a_server_is_raised(numbers: Numbers, clock: Clock) -> None:
    numbers.refresh()
    numbers.trouble = KeyError("ours")
    clock.now += 3
    with pytest.raises(KeyError):
        numbers.refresh()
    assert numbers.known == [1]


class Slow(Numbers):
    """Each load but the first waits until it may end."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.may_end = threading.Event(), threading.Event()

    def load(self) -> list[int]:
        if self.loads:
            self.begun.set()
            assert self.may_end.wait(60)
        return super().load()


def test_where_it_is_loaded_beside_a_database_that_hangs_holds_up_nobody(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_call, "_is_on", True)
    slow = Slow()
    slow.refresh()
    clock.now += 3
    slow.refresh()  # returns although its load hangs
    assert slow.begun.wait(60)
    clock.now += 3
    slow.refresh()
    assert slow.known == [1]
    slow.may_end.set()
    slow.refresh(at_once=True)
    assert slow.known == [3]


def loads_a_change() -> tuple[Slow, threading.Thread]:
    """A snapshot, and the thread that loads its change and has not ended."""
    slow = Slow()
    slow.refresh()
    Snapshot.expire_all()
    thread = threading.Thread(target=slow.refresh)
    thread.start()
    assert slow.begun.wait(60)
    return slow, thread


def test_a_change_counts_at_once_beside_a_thread_that_loads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounded_call, "PATIENCE_SECONDS", 60)
    slow, loading = loads_a_change()
    assert not slow.is_fresh
    threading.Timer(0.2, slow.may_end.set).start()
    slow.refresh()
    assert slow.known == [2]
    loading.join(60)


def test_a_change_is_not_waited_for_long(clock: Clock) -> None:
    slow, hanging = loads_a_change()
    clock.now += bounded_call.PATIENCE_SECONDS
    slow.refresh()  # returns although the other one hangs
    assert slow.known == [1]
    slow.may_end.set()
    hanging.join(60)


def test_a_database_that_hangs_holds_up_one_thread_only(clock: Clock) -> None:
    slow = Slow()
    slow.refresh()
    clock.now += 3
    hanging = threading.Thread(target=slow.refresh)
    hanging.start()
    assert slow.begun.wait(60)
    clock.now += 3
    slow.refresh()  # returns although the other one hangs
    assert slow.known == [1]
    demand = threading.Thread(target=slow.refresh, args=(True,))
    demand.start()
    slow.may_end.set()
    hanging.join(60)
    demand.join(60)
    assert slow.known == [3], "who demanded it did not go on with the load that was under way"
