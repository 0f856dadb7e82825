"""Upkeep: what `run_bulk` does at times beside its jobs, such as deleting what is old.

A feature registers its own in `AppConfig.ready()`.
"""

from __future__ import annotations

from collections.abc import Callable


class Upkeep:
    """Made once in a process that runs bulk jobs."""

    def start(self) -> None:
        """Called before the first turn."""

    def turn(self) -> bool:
        """Do one bounded piece of what is due; true while there may be more."""
        return False

    def stop(self) -> None:
        """Called after the last turn."""


_makers: list[Callable[[], Upkeep]] = []


def register(make: Callable[[], Upkeep]) -> None:
    """Have each process that runs bulk jobs make one."""
    _makers.append(make)


def make_all() -> list[Upkeep]:
    """A new one of each kind that is registered."""
    return [make() for make in _makers]
