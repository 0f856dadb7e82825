"""A counter that one process raises and another one reads: two numbers in a mapped file.

Standard library only, because programs that use it must not import what they measure.
"""

import mmap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_COUNT, _IDLE = 0, 1  # places in the file; 64 bits each, which are written at once


class Progress:
    """`count` units are done; `idle_seconds` went into making input, which is not the work."""

    def __init__(self, file: Path) -> None:
        self.file = file
        if not file.exists():
            file.write_bytes(bytes(16))
        with file.open("r+b") as opened:
            self._numbers = memoryview(mmap.mmap(opened.fileno(), 16)).cast("q")

    @property
    def count(self) -> int:
        return self._numbers[_COUNT]

    @count.setter
    def count(self, value: int) -> None:
        self._numbers[_COUNT] = value

    def add(self, units: int) -> None:
        self._numbers[_COUNT] += units

    @property
    def idle_seconds(self) -> float:
        return self._numbers[_IDLE] / 1e9

    @contextmanager
    def idle(self) -> Iterator[None]:
        """What happens inside the block is not measured."""
        begun = time.monotonic_ns()
        yield
        self._numbers[_IDLE] += time.monotonic_ns() - begun
