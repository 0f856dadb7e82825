"""Bells that are listened to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from msgplatform.core.daemons.wake_signal import Listener, WakeSignal

SOON = 180.0


class Hearing:
    """Counts rings."""

    def __init__(self) -> None:
        self.count = 0
        self._rung = threading.Semaphore(0)

    def __call__(self) -> None:
        self.count += 1
        self._rung.release()

    def wait(self) -> None:
        assert self._rung.acquire(timeout=SOON)


@pytest.fixture
def listen(work_redis: object) -> Iterator[Callable[[WakeSignal], Hearing]]:
    listeners: list[Listener] = []

    def start(bell: WakeSignal) -> Hearing:
        hearing = Hearing()
        listeners.append(Listener(bell, hearing))
        listeners[-1].start()
        hearing.wait()  # it may have missed something before it listened
        return hearing

    yield start
    for each in listeners:
        each.stop()
