"""Group commit: who shares a group, who gets which answer, and what happens when it goes wrong."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from django.db import DataError, IntegrityError
from django.db.utils import InterfaceError, OperationalError, ProgrammingError

from msgplatform.core.errors import Conflict, LeaseLost, OutcomeUnknown, Temporary, Unavailable
from msgplatform.core.intake.group_commit import GroupCommit

SOON = 180.0  # seconds that a test waits for an event before it fails


class Store:
    """Records what was committed. While `gate` is closed a commit waits in the middle."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.stored: list[int] = []
        self.threads: set[int] = set()
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        self.fail: Callable[[list[int]], None] = lambda _: None

    def __call__(self, items: list[int]) -> Sequence[str]:
        self.threads.add(threading.get_ident())
        self.groups.append(items)
        self.entered.release()
        assert self.gate.wait(SOON)
        self.fail(items)
        self.stored += items
        return [f"stored {item}" for item in items]


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(64) as pool:
        yield pool


def hold_first(group: GroupCommit[int, str], store: Store, pool: ThreadPoolExecutor) -> Future[str]:
    """Submit item 0 and return when its group is in the middle of its commit."""
    store.gate.clear()
    first = pool.submit(group.submit, 0)
    assert store.entered.acquire(timeout=SOON)
    return first


def wait_until(condition: Callable[[], bool]) -> None:
    """The queue is filled by other threads; there is no event for "all of them wait"."""
    deadline = threading.Event()
    for _ in range(int(SOON / 0.005)):
        if condition():
            return
        deadline.wait(0.005)
    raise AssertionError("it did not come true")


def waiting(group: GroupCommit[int, str], n: int) -> None:
    wait_until(lambda: len(group._queue) == n)


def test_each_caller_gets_its_own_result(store: Store, pool: ThreadPoolExecutor) -> None:
    group = GroupCommit(store, timeout=SOON)
    results = list(pool.map(group.submit, range(1000)))
    assert results == [f"stored {n}" for n in range(1000)]
    assert sorted(store.stored) == list(range(1000))
    assert len(store.threads) == 1
    assert threading.get_ident() not in store.threads
    assert group.close(SOON)


def test_a_group_is_what_came_while_the_last_one_committed(
    store: Store, pool: ThreadPoolExecutor
) -> None:
    group = GroupCommit(store, timeout=SOON, max_items=20)
    first = hold_first(group, store, pool)
    later = [pool.submit(group.submit, n) for n in range(1, 51)]
    waiting(group, 50)
    store.gate.set()
    assert first.result(SOON) == "stored 0"
    assert {f.result(SOON) for f in later} == {f"stored {n}" for n in range(1, 51)}
    assert [len(items) for items in store.groups] == [1, 20, 20, 10]


@pytest.mark.parametrize(
    "error",
    [DataError("too long"), IntegrityError("no such system"), ValueError("odd"), Conflict("other")],
)
def test_only_the_culprits_get_the_error(
    store: Store, pool: ThreadPoolExecutor, error: Exception
) -> None:
    culprits = {7, 31}

    def refuse(items: list[int]) -> None:
        if culprits & set(items):
            raise error

    store.fail = refuse
    group = GroupCommit(store, timeout=SOON)
    first = hold_first(group, store, pool)
    later = {n: pool.submit(group.submit, n) for n in range(1, 41)}
    waiting(group, 40)
    store.gate.set()
    assert first.result(SOON) == "stored 0"
    for n, future in later.items():
        if n in culprits:
            assert future.exception(SOON) is error
        else:
            assert future.result(SOON) == f"stored {n}"
    assert sorted(store.stored) == [n for n in range(41) if n not in culprits]
    # Halving: about 2 log2(40) groups for each culprit, not forty.
    assert len(store.groups) <= 25


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OperationalError(2013, "Lost connection during query"), OutcomeUnknown),
        (OperationalError(2006, "Server has gone away"), OutcomeUnknown),
        (InterfaceError(0, ""), OutcomeUnknown),
        (OperationalError("disk I/O error"), OutcomeUnknown),
        (OperationalError(2002, "Can't connect"), Unavailable),
        (OperationalError(1213, "Deadlock found"), Unavailable),
        (OperationalError("database is locked"), Unavailable),
        (ProgrammingError(1146, "Table doesn't exist"), Unavailable),
        (Unavailable("no id node"), Unavailable),
        (LeaseLost("gone"), LeaseLost),
    ],
)
def test_an_error_of_the_database_goes_to_the_whole_group(
    store: Store, pool: ThreadPoolExecutor, error: Exception, kind: type[Temporary]
) -> None:
    group = GroupCommit(store, timeout=SOON)
    first = hold_first(group, store, pool)
    later = [pool.submit(group.submit, n) for n in range(1, 11)]
    waiting(group, 10)

    def lose(items: list[int]) -> None:
        if items != [0]:
            raise error

    store.fail = lose
    store.gate.set()
    assert first.result(SOON) == "stored 0"
    errors = [f.exception(SOON) for f in later]
    assert {type(e) for e in errors} == {kind}
    ours = isinstance(error, Temporary)  # a database's text names servers and users
    assert {str(e) for e in errors} == {str(error) if ours else ""}
    assert len({id(e) for e in errors}) == 10  # an exception shared by threads mixes tracebacks
    assert len(store.groups) == 2  # not halved
    store.fail = lambda _: None
    assert group.submit(99) == "stored 99"  # and the thread goes on


def test_a_caller_whose_group_had_started_does_not_know(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = GroupCommit(store, timeout=0.05)
    put = group._put

    def put_and_start(slot: Any) -> None:
        put(slot)
        assert store.entered.acquire(timeout=SOON)

    # Its time begins when its group has started.
    monkeypatch.setattr(group, "_put", put_and_start)
    store.gate.clear()
    with pytest.raises(OutcomeUnknown, match="idempotency key"):
        group.submit(0)
    store.gate.set()
    assert group.close(SOON)
    assert store.stored == [0]


def test_a_caller_who_gave_up_before_the_start_is_withdrawn(
    store: Store, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = GroupCommit(store, timeout=SOON)
    hold_first(group, store, pool)
    monkeypatch.setattr(group, "_timeout", 0.05)  # of the next one
    with pytest.raises(Unavailable, match="nothing was stored"):
        group.submit(1)
    store.gate.set()
    assert group.close(SOON)
    assert store.stored == [0]  # what was reported as not stored is not stored later


def test_a_full_queue_answers_at_once(store: Store, pool: ThreadPoolExecutor) -> None:
    group = GroupCommit(store, timeout=SOON, max_queue=3)
    hold_first(group, store, pool)
    later = [pool.submit(group.submit, n) for n in range(1, 4)]
    waiting(group, 3)
    with pytest.raises(Unavailable, match="too many"):
        group.submit(4)
    store.gate.set()
    assert [f.result(SOON) for f in later] == ["stored 1", "stored 2", "stored 3"]
    assert 4 not in store.stored


def test_close_commits_what_waits_and_takes_nothing_new(
    store: Store, pool: ThreadPoolExecutor
) -> None:
    group = GroupCommit(store, timeout=SOON, max_items=5)
    hold_first(group, store, pool)
    later = [pool.submit(group.submit, n) for n in range(1, 21)]
    waiting(group, 20)
    closed = pool.submit(group.close, SOON)
    wait_until(lambda: group._closing)
    with pytest.raises(Unavailable, match="shutting down"):
        group.submit(99)
    store.gate.set()
    assert closed.result(SOON) is True
    assert {f.result(SOON) for f in later} == {f"stored {n}" for n in range(1, 21)}
    assert sorted(store.stored) == list(range(21))


def test_close_says_when_it_could_not_finish(store: Store, pool: ThreadPoolExecutor) -> None:
    group = GroupCommit(store, timeout=SOON)
    hold_first(group, store, pool)
    assert group.close(timeout=0.05) is False
    store.gate.set()
    assert group.close(SOON) is True


def test_closing_what_was_never_used(store: Store) -> None:
    assert GroupCommit(store).close()


def test_a_commit_that_miscounts_is_not_taken_for_a_failure(pool: ThreadPoolExecutor) -> None:
    """It did commit: halving and repeating would store everything twice."""
    calls: list[list[int]] = []

    def miscount(items: list[int]) -> list[str]:
        calls.append(items)
        return []

    group: GroupCommit[int, str] = GroupCommit(miscount, timeout=SOON)
    with pytest.raises(OutcomeUnknown, match="answers were lost"):
        group.submit(1)
    assert calls == [[1]]


def test_none_is_a_result_like_any_other() -> None:
    group: GroupCommit[int, None] = GroupCommit(lambda items: [None] * len(items), timeout=SOON)
    assert group.submit(1) is None


def test_a_forked_child_commits_in_a_thread_of_its_own(
    store: Store, pool: ThreadPoolExecutor
) -> None:
    """The parent's thread and its waiting callers stay with the parent, even mid-commit."""
    group = GroupCommit(store, timeout=SOON)
    first = hold_first(group, store, pool)
    waiting_caller = pool.submit(group.submit, 1)
    waiting(group, 1)
    child = os.fork()
    if child == 0:  # pragma: no cover - runs in the child
        store.gate = threading.Event()  # the parent's may have been locked at that moment
        store.gate.set()
        store.stored.clear()
        answer = group.submit(5)
        os._exit(0 if answer == "stored 5" and store.stored == [5] else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    store.gate.set()
    assert first.result(SOON) == "stored 0"
    assert waiting_caller.result(SOON) == "stored 1"
    assert store.stored == [0, 1]


class Calls:
    """Takes what `submit_later` calls back with."""

    def __init__(self) -> None:
        self.got: list[tuple[str | None, Exception | None]] = []
        self.came = threading.Semaphore(0)

    def __call__(self, result: str | None, error: Exception | None) -> None:
        self.got.append((result, error))
        self.came.release()

    def wait(self, n: int = 1) -> None:
        for _ in range(n):
            assert self.came.acquire(timeout=SOON)


def test_later_each_is_called_once_and_nobody_waits(store: Store) -> None:
    group = GroupCommit(store, timeout=SOON, max_items=20)
    calls = Calls()
    store.gate.clear()
    for n in range(50):
        group.submit_later(n, calls)  # returns although nothing can be committed
    assert calls.got == []
    store.gate.set()
    calls.wait(50)
    assert sorted(calls.got) == sorted((f"stored {n}", None) for n in range(50))
    assert len(store.threads) == 1
    assert group.close(SOON)
    assert len(calls.got) == 50


def test_later_and_waiting_callers_share_a_group(store: Store, pool: ThreadPoolExecutor) -> None:
    group = GroupCommit(store, timeout=SOON)
    first = hold_first(group, store, pool)
    calls = Calls()
    group.submit_later(1, calls)
    waiting_caller = pool.submit(group.submit, 2)
    waiting(group, 2)
    store.gate.set()
    assert first.result(SOON) == "stored 0"
    assert waiting_caller.result(SOON) == "stored 2"
    calls.wait()
    assert calls.got == [("stored 1", None)]
    assert sorted(store.groups[1]) == [1, 2]


def test_later_only_the_culprit_gets_the_error(store: Store, pool: ThreadPoolExecutor) -> None:
    def refuse(items: list[int]) -> None:
        if 3 in items:
            raise DataError("too long")

    store.fail = refuse
    group = GroupCommit(store, timeout=SOON)
    first = hold_first(group, store, pool)
    calls = {n: Calls() for n in range(1, 9)}
    for n, call in calls.items():
        group.submit_later(n, call)
    store.gate.set()
    assert first.result(SOON) == "stored 0"
    for n, call in calls.items():
        call.wait()
        result, error = call.got[0]
        assert (result, type(error)) == (
            (None, DataError) if n == 3 else (f"stored {n}", type(None))
        )


def test_later_a_group_that_does_not_start_in_time_is_withdrawn(
    store: Store, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = GroupCommit(store, timeout=SOON)
    hold_first(group, store, pool)
    monkeypatch.setattr(group, "_timeout", 0.05)  # of the next one
    calls = Calls()
    group.submit_later(1, calls)
    calls.wait()
    assert [type(error) for _, error in calls.got] == [Unavailable]
    store.gate.set()
    assert group.close(SOON)
    assert store.stored == [0]  # what was reported as not stored is not stored later
    assert len(calls.got) == 1


def test_later_a_group_that_had_started_is_unknown_and_called_once(store: Store) -> None:
    group = GroupCommit(store, timeout=SOON)
    calls = Calls()
    store.gate.clear()
    group.submit_later(1, calls)
    assert store.entered.acquire(timeout=SOON)
    slots: list[Any] = group._started
    slots[0].due = 0.0  # its time is over
    calls.wait()
    assert [type(error) for _, error in calls.got] == [OutcomeUnknown]
    store.gate.set()
    assert group.close(SOON)
    assert store.stored == [1]
    assert len(calls.got) == 1  # its result came too late


def test_later_a_call_that_raises_does_not_stop_the_others(store: Store) -> None:
    group = GroupCommit(store, timeout=SOON)
    calls = Calls()

    def broken(result: str | None, error: Exception | None) -> None:
        raise ZeroDivisionError

    store.gate.clear()
    group.submit_later(1, broken)
    group.submit_later(2, calls)
    store.gate.set()
    calls.wait()
    assert calls.got == [("stored 2", None)]
    assert group.submit(3) == "stored 3"


def test_later_is_refused_when_full_or_closed(store: Store, pool: ThreadPoolExecutor) -> None:
    group = GroupCommit(store, timeout=SOON, max_queue=1)
    hold_first(group, store, pool)
    calls = Calls()
    group.submit_later(1, calls)
    with pytest.raises(Unavailable, match="too many"):
        group.submit_later(2, calls)
    store.gate.set()
    assert group.close(SOON)
    with pytest.raises(Unavailable, match="shutting down"):
        group.submit_later(3, calls)
    calls.wait()
    assert calls.got == [("stored 1", None)]
