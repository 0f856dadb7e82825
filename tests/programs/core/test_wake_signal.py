"""Wake-up signals through a real Redis: received, lost, and received again."""

import os
import signal
import threading
import time
from collections.abc import Callable

import pytest
import redis

from msgplatform.core.daemons import wake_signal as module
from msgplatform.core.daemons.daemon import Loop, Worker
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.daemons.wake_signal import WakeSignal
from msgplatform.core.rates.backoff import Backoff
from tests.servers import Servers
from tests.support.listening import SOON, Hearing, listen

__all__ = ["listen"]


def test_all_who_listen_are_woken_and_nobody_else(listen: Callable[[WakeSignal], Hearing]) -> None:
    wake_signal, other = WakeSignal("a"), WakeSignal("b")
    first, second, deaf = listen(wake_signal), listen(wake_signal), listen(other)
    wake_signal.send()
    first.wait()
    second.wait()
    assert deaf.count == 1


def test_no_signal_is_swallowed_by_the_one_before(listen: Callable[[WakeSignal], Hearing]) -> None:
    """Signals that are sent together are received as one, after the last of them."""
    wake_signal = WakeSignal("a")
    hearing = listen(wake_signal)
    for _ in range(1000):
        wake_signal.send()
    hearing.wait()
    heard = hearing.count
    wake_signal.send()
    deadline = time.monotonic() + SOON
    while hearing.count <= heard:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert hearing.count < 500


def test_nobody_waits_for_redis_and_who_listens_comes_back(
    listen: Callable[[WakeSignal], Hearing], servers: Servers
) -> None:
    wake_signal = WakeSignal("a")
    hearing = listen(wake_signal)
    servers.work.kill()
    try:
        begun = time.monotonic()
        wake_signal.send()
        assert time.monotonic() - begun < 30
    finally:
        servers.work.start()
    hearing.wait()  # it listens again, and may have missed something
    wake_signal.send()
    hearing.wait()


def test_a_connection_that_is_made_anew_may_have_missed_a_signal(
    listen: Callable[[WakeSignal], Hearing], work_redis: redis.Redis
) -> None:
    """However quickly the server is there again."""
    wake_signal = WakeSignal("anew")
    hearing = listen(wake_signal)
    deadline = time.monotonic() + SOON
    while work_redis.pubsub_numsub(wake_signal.channel)[0][1] == 0:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert work_redis.client_kill_filter(_type="pubsub") >= 1
    hearing.wait()


def test_a_child_sends_that_was_forked_while_another_thread_began_to(
    listen: Callable[[WakeSignal], Hearing], monkeypatch: pytest.MonkeyPatch
) -> None:
    wake_signal = WakeSignal("a")
    hearing = listen(wake_signal)
    starting, go_on = threading.Event(), threading.Event()

    class Slow(ThreadLoop):
        def start(self) -> None:
            starting.set()
            go_on.wait()
            super().start()

    monkeypatch.setattr(module, "ThreadLoop", Slow)
    sending = threading.Thread(target=wake_signal.send)
    sending.start()
    assert starting.wait(SOON)
    child = os.fork()
    if child == 0:  # pragma: no cover - runs in the child
        try:
            monkeypatch.undo()
            wake_signal.send()
            signal.pause()
        finally:
            os._exit(1)
    try:
        hearing.wait()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        go_on.set()
        sending.join(SOON)
    hearing.wait()  # the parent's own


class Sleeper(Worker):
    """Does nothing, seldom."""

    role = "sleeper"
    watches = False  # it needs no database
    idle_seconds = 3600.0
    wake_signal = WakeSignal("sleeper")

    def __init__(self) -> None:
        super().__init__()
        self.turns = threading.Semaphore(0)

    def turn(self) -> bool:
        self.turns.release()
        return False


def test_a_worker_that_waits_is_woken(work_redis: object, settings: object) -> None:
    worker = Sleeper()
    loop = Loop(worker)
    loop.idle = Backoff(first=3600.0, cap=3600.0)
    thread = threading.Thread(target=loop.run, args=(1.0,))
    thread.start()
    try:
        for _ in range(2):  # at its start, and because it may have missed a signal before
            assert worker.turns.acquire(timeout=SOON)
        worker.wake_signal.send()
        assert worker.turns.acquire(timeout=SOON)
    finally:
        worker.stopping.set()
        thread.join(SOON)
    assert not thread.is_alive()


class Troubled(Worker):
    """Fails at every turn."""

    role = "troubled"
    watches = False  # it needs no database

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def turn(self) -> bool:
        self.count += 1
        raise ZeroDivisionError


def test_new_work_does_not_shorten_a_pause_after_trouble(work_redis: object) -> None:
    worker = Troubled()
    thread = threading.Thread(target=Loop(worker).run, args=(1.0,))
    thread.start()
    try:
        for _ in range(200):
            worker.stopping.wake()
            time.sleep(0.005)
    finally:
        worker.stopping.set()
        thread.join(SOON)
    assert not thread.is_alive()
    assert worker.count < 20
