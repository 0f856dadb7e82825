"""A thread that works beside a daemon's loop, and ends with it."""

import threading
import time
from queue import Queue

import pytest

from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.errors import Unavailable

LONG = 60.0


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Events of the loop's thread: threads of earlier tests may log too."""
    return [record.msg["event"] for record in caplog.records if record.threadName == "test"]


def test_it_is_called_again_when_its_seconds_are_over() -> None:
    calls: Queue[int] = Queue()
    loop = ThreadLoop("test", lambda: calls.put(1), every=0.01)
    loop.start()
    for _ in range(3):
        calls.get(timeout=LONG)
    loop.stop(LONG)


def test_the_turn_may_say_when_it_wants_to_be_called() -> None:
    calls: Queue[int] = Queue()

    def turn() -> float:
        calls.put(1)
        return 0.0

    loop = ThreadLoop("test", turn, every=3600.0)
    loop.start()
    for _ in range(3):
        calls.get(timeout=LONG)
    loop.stop(LONG)


def test_waking_and_stopping_end_a_pause_at_once() -> None:
    calls: Queue[str] = Queue()
    loop = ThreadLoop(
        "test", lambda: calls.put("turn"), every=3600.0, last=lambda: calls.put("last")
    )
    loop.start()
    calls.get(timeout=LONG)
    loop.wake()
    calls.get(timeout=LONG)
    loop.stop(LONG)
    loop.stop(LONG)
    assert calls.get_nowait() == "last"
    assert calls.empty(), "once"


@pytest.mark.parametrize(
    ("error", "event"), [(Unavailable("gone"), "thread_waits"), (KeyError("x"), "thread_failed")]
)
def test_trouble_is_logged_and_it_goes_on(
    error: Exception, event: str, caplog: pytest.LogCaptureFixture
) -> None:
    calls: Queue[int] = Queue()
    troubles = [error, error]

    def turn() -> None:
        if troubles:
            raise troubles.pop()
        calls.put(1)

    loop = ThreadLoop("test", turn, every=3600.0)
    loop.start()
    calls.get(timeout=LONG)
    loop.stop(LONG)
    assert logged(caplog) == [event, event]


def test_a_last_call_that_fails_ends_it_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    def last() -> None:
        raise Unavailable("gone")

    loop = ThreadLoop("test", lambda: None, every=3600.0, last=last)
    loop.start()
    loop.stop(LONG)
    assert logged(caplog) == ["thread_waits"]


def test_a_turn_that_a_stop_interrupts_reports_no_unavailable_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    waits, server_ends = threading.Event(), threading.Event()

    def turn() -> None:
        waits.set()
        server_ends.wait(LONG)
        raise Unavailable("gone")

    loop = ThreadLoop("test", turn)
    loop.start()
    assert waits.wait(LONG)
    loop.stop()
    server_ends.set()
    loop.stop(LONG)
    assert logged(caplog) == []


def test_a_turn_that_hangs_holds_up_no_end() -> None:
    hangs, may_end = threading.Event(), threading.Event()

    def turn() -> None:
        hangs.set()
        may_end.wait(LONG)

    loop = ThreadLoop("test", turn)
    loop.start()
    assert hangs.wait(LONG)
    begun = time.monotonic()
    loop.stop(0.1)
    assert time.monotonic() - begun < LONG / 2
    may_end.set()
    loop.stop(LONG)


def test_one_that_never_began_can_be_stopped() -> None:
    ThreadLoop("test", lambda: None).stop(LONG)
