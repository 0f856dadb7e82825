"""Listeners to wake-up signals."""

import threading
from collections.abc import Callable, Iterator

import pytest

from msgplatform.core.daemons.wake_signal import Listener, WakeSignal

SOON = 180.0


class Hearing:
    """Counts wake-up signals."""

    def __init__(self) -> None:
        self.count = 0
        self._received = threading.Semaphore(0)

    def __call__(self) -> None:
        self.count += 1
        self._received.release()

    def wait(self) -> None:
        assert self._received.acquire(timeout=SOON)


@pytest.fixture
def listen(work_redis: object) -> Iterator[Callable[[WakeSignal], Hearing]]:
    listeners: list[Listener] = []

    def start(wake_signal: WakeSignal) -> Hearing:
        hearing = Hearing()
        listeners.append(Listener(wake_signal, hearing))
        listeners[-1].start()
        hearing.wait()  # it may have missed something before it listened
        return hearing

    yield start
    for each in listeners:
        each.stop()
