"""Rings through a real Redis: heard, lost, and heard again."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

import pytest

from msgplatform.core.daemons import wake_signal as bells
from msgplatform.core.daemons.daemon import Loop, Worker
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.daemons.wake_signal import WakeSignal
from msgplatform.core.rates.backoff import Backoff
from tests.integration.support.rings import SOON, Hearing, listen
from tests.servers import Servers

__all__ = ["listen"]


def test_all_who_listen_are_woken_and_nobody_else(listen: Callable[[WakeSignal], Hearing]) -> None:
    bell, other = WakeSignal("a"), WakeSignal("b")
    first, second, deaf = listen(bell), listen(bell), listen(other)
    bell.ring()
    first.wait()
    second.wait()
    assert deaf.count == 1


def test_no_ring_is_swallowed_by_the_one_before(listen: Callable[[WakeSignal], Hearing]) -> None:
    """Those that come together are one, and it comes after the last of them."""
    bell = WakeSignal("a")
    hearing = listen(bell)
    for _ in range(1000):
        bell.ring()
    hearing.wait()
    heard = hearing.count
    bell.ring()
    deadline = time.monotonic() + SOON
    while hearing.count <= heard:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert hearing.count < 500


def test_nobody_waits_for_redis_and_who_listens_comes_back(
    listen: Callable[[WakeSignal], Hearing], servers: Servers
) -> None:
    bell = WakeSignal("a")
    hearing = listen(bell)
    servers.work.kill()
    try:
        begun = time.monotonic()
        bell.ring()
        assert time.monotonic() - begun < 1
    finally:
        servers.work.start()
    hearing.wait()  # it listens again, and may have missed something
    bell.ring()
    hearing.wait()


def test_a_child_rings_that_was_forked_while_another_thread_began_to(
    listen: Callable[[WakeSignal], Hearing], monkeypatch: pytest.MonkeyPatch
) -> None:
    bell = WakeSignal("a")
    hearing = listen(bell)
    starting, go_on = threading.Event(), threading.Event()

    class Slow(ThreadLoop):
        def start(self) -> None:
            starting.set()
            go_on.wait()
            super().start()

    monkeypatch.setattr(bells, "ThreadLoop", Slow)
    ringing = threading.Thread(target=bell.ring)
    ringing.start()
    assert starting.wait(SOON)
    child = os.fork()
    if child == 0:  # pragma: no cover - runs in the child
        try:
            monkeypatch.undo()
            bell.ring()
            signal.pause()
        finally:
            os._exit(1)
    try:
        hearing.wait()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        go_on.set()
        ringing.join(SOON)
    hearing.wait()  # the parent's own


class Sleeper(Worker):
    """Does nothing, seldom."""

    role = "sleeper"
    idle_seconds = 3600.0
    bell = WakeSignal("sleeper")

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
        for _ in range(2):  # at its start, and because it may have missed a ring before
            assert worker.turns.acquire(timeout=SOON)
        worker.bell.ring()
        assert worker.turns.acquire(timeout=SOON)
    finally:
        worker.stopping.set()
        thread.join(SOON)
    assert not thread.is_alive()


class Troubled(Worker):
    """Fails at every turn."""

    role = "troubled"

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
