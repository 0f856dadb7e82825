"""A thread beside a daemon's loop, for work that may hang with a server and must not hold it up."""

from __future__ import annotations

import threading
from collections.abc import Callable

from django.db import close_old_connections

from msgplatform.core import logging
from msgplatform.core.daemons import standstill
from msgplatform.core.data import schema_state
from msgplatform.core.errors import UNAVAILABLE, Temporary, Unavailable
from msgplatform.core.rates.backoff import Backoff

log = logging.get(__name__)

# The longest pause (seconds) of a loop whose server is away: when the server is back, so is the
# work.
MAX_AWAY_PAUSE = 2.0


class ThreadLoop:
    """Calls `turn` in a thread of its own until it is stopped, then `last` once.

    `turn` does one bounded piece of work. It returns the seconds until its next call, which
    `wake()` ends early; None means `every`. Its errors are logged, and it is called again after
    a pause that grows to `longest_pause`. No `turn` holds up the end of the process: after a stop
    it may go on for a while, and an unavailable server is then no longer logged.
    """

    def __init__(
        self,
        name: str,
        turn: Callable[[], float | None],
        *,
        every: float = 0.0,
        last: Callable[[], None] | None = None,
        longest_pause: float = MAX_AWAY_PAUSE,
    ) -> None:
        self._name, self._turn, self._last = name, turn, last
        self._every = every
        self._trouble = Backoff(first=0.2, factor=2.0, cap=longest_pause)
        # Set by any thread. `_woken` is set by a stop too, so that one wait serves both.
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Call `turn` soon; cheap when that has been asked for already."""
        if not self._woken.is_set():
            self._woken.set()

    def stop(self, wait: float = 0.0) -> None:
        """Ask it to end, and wait for that at most `wait` seconds. May be called again."""
        self._stopping.set()
        self._woken.set()
        if wait and self._thread.is_alive():
            self._thread.join(wait)

    def _run(self) -> None:
        while not self._stopping.is_set():
            if (pause := self._guarded(self._turn)) is None:
                # Not ended by `wake()`: new work would be in the same trouble.
                self._stopping.wait(self._trouble.next())
                continue
            self._trouble.reset()
            self._woken.wait(pause)
            self._woken.clear()
        standstill.end(self._name)
        if self._last is not None:
            self._guarded(self._last)

    def _guarded(self, work: Callable[[], float | None]) -> float | None:
        """Seconds to wait; None after trouble. The thread must not end, whatever happens."""
        try:
            close_old_connections()  # this thread has its own; the server may have closed it
            seconds = work()
        except UNAVAILABLE as error:
            # A turn that a stop found waiting ends when its server does, perhaps with the process.
            # Its other errors are logged all the same.
            of_server = isinstance(error, Unavailable) or not isinstance(error, Temporary)
            standstill.fail(self._name, error)
            if work is not self._turn or not self._stopping.is_set() or not of_server:
                why = schema_state.reason(error) or str(error)[:200]
                log.warning("thread_waits", thread=self._name, why=why)
            return None
        except Exception as error:
            standstill.fail(self._name, error)
            if why := schema_state.reason(error):
                log.warning("thread_waits", thread=self._name, why=why)
            else:
                log.exception("thread_failed", thread=self._name)
            return None
        finally:
            close_old_connections()
        standstill.end(self._name)
        return self._every if seconds is None else seconds
