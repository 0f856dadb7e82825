"""A machine that was suspended."""

import time

import pytest


def suspend(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Set the clocks ahead that go on meanwhile; `time.monotonic` stands still."""
    read_clock = time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda clock: read_clock(clock) + seconds)
