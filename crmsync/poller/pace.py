"""Look less often when the CRM or the database has much to do."""

from __future__ import annotations

import os

from crmsync import presence
from msgplatform.core.daemons.timer import Every
from msgplatform.core.data import load

SLOWEST = 8.0  # times the interval
# A CRM whose calls take longer than this, in seconds, has enough to do.
_SLOW_ANSWER = 2.0
# Statements that run at once, for each core of this machine; more of them wait for each other.
_THREADS_A_CORE = 4
_LOOK_SECONDS = 5.0


class Pace:
    """The factor by which an interval is multiplied, from 1 to SLOWEST; for one thread."""

    def __init__(self) -> None:
        self._next_look = Every(_LOOK_SECONDS)
        self._database = 1.0

    def factor(self, live: presence.LiveCrm | None) -> float:
        if self._next_look.take():
            running = load.running_statements()
            self._database = running / (_THREADS_A_CORE * (os.cpu_count() or 1))
        answers = live.latency / _SLOW_ANSWER if live else 1.0
        return min(SLOWEST, max(1.0, self._database, answers))
