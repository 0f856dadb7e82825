"""How fast dispatchers work."""

from __future__ import annotations

from dataclasses import dataclass

from msgplatform.core.daemons.heartbeats import Heartbeat

MOST_EVENTS = 100  # of a batch: ten times as many are not faster, and wait ten times as long


@dataclass(frozen=True, slots=True)
class Pace:
    """`events` in a batch at most; `share` of its time that a dispatcher works, 0 to 1."""

    events: int = MOST_EVENTS
    share: float = 1.0


class Pacer:
    """What a dispatcher knows of the scheduler's decision."""

    def __init__(self, heartbeat: Heartbeat) -> None:
        self._heartbeat = heartbeat

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def current(self) -> Pace:
        return Pace()
