"""Bells that are listened to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from msgplatform.core.daemons.bell import Bell, Listener


@pytest.fixture
def heard(work_redis: Any) -> Iterator[Callable[[Bell], threading.Event]]:
    listeners: list[Listener] = []

    def listen(bell: Bell) -> threading.Event:
        ring = threading.Event()
        listeners.append(Listener(bell, ring.set))
        listeners[-1].start()
        assert ring.wait(30)  # it listens
        ring.clear()
        return ring

    yield listen
    for listener in listeners:
        listener.stop()
