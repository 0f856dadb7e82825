"""How much work one validation may be: steps that are counted, so that each validation ends soon.

A small schema can ask for years of work: references that double, alternatives in alternatives.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

# A step takes 1 to 5 microseconds. A value of 256 KiB needs 70,000 steps as lines of an order with
# a schema for each field, and 135,000 as nothing but numbers.
_STEPS, _BYTES_A_STEP = 20_000, 2


class TooManySteps(Exception):
    """A validation was ended, as it took more steps than its value may have."""


class _Steps(threading.local):
    """Of the validation that this thread is at."""

    remaining = 0
    factor = 1


_steps = _Steps()


@contextmanager
def counted(value: Any) -> Iterator[None]:
    """Begin to count the steps of this thread, for a validation of this value."""
    size = len(msgspec.json.encode(value))
    _steps.remaining, _steps.factor = _STEPS + size // _BYTES_A_STEP, 1
    yield


def spend(steps: int) -> None:
    """Raises TooManySteps."""
    _steps.remaining -= steps * _steps.factor
    if _steps.remaining < 0:
        raise TooManySteps


@contextmanager
def multiplied(factor: int) -> Iterator[None]:
    """Each step in the block counts `factor` times."""
    before = _steps.factor
    _steps.factor = before * factor
    try:
        yield
    finally:
        _steps.factor = before
