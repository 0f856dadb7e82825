"""A thread beside a daemon's loop, for work that may hang with a server."""

import threading
from collections.abc import Callable

from django.db import close_old_connections

from msgplatform.core import logging
from msgplatform.core.daemons import standstill
from msgplatform.core.data import schema_state
from msgplatform.core.errors import UNAVAILABLE, Temporary, Unavailable
from msgplatform.core.rates.backoff import Backoff

log = logging.get(__name__)

# The longest pause (seconds) while a server is away, so that work goes on soon after.
MAX_AWAY_PAUSE = 2.0


class ThreadLoop:
    """Calls `turn` in a thread until a stop, then `last` once.

    `turn` does one bounded piece of work and returns the seconds until the next call, which
    `wake()` ends early; None means `every`. Errors are logged, and the next call comes after a
    pause that grows to `longest_pause`. A hanging `turn` does not delay the end of the process.
    After a stop an unavailable server is not logged.
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
        # Any thread sets these events. A stop sets `_woken` too, so that one wait serves both.
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Call `turn` soon. A repeated call is cheap."""
        if not self._woken.is_set():
            self._woken.set()

    def stop(self, wait: float = 0.0) -> None:
        """Ask the thread to end, and wait at most `wait` seconds. May be called again."""
        self._stopping.set()
        self._woken.set()
        if wait and self._thread.is_alive():
            self._thread.join(wait)

    def _run(self) -> None:
        while not self._stopping.is_set():
            if (pause := self._run_work(self._turn)) is None:
                # `wake()` does not end this pause, because new work would fail too.
                self._stopping.wait(self._trouble.next())
                continue
            self._trouble.reset()
            self._woken.wait(pause)
            self._woken.clear()
        standstill.end(self._name)
        if self._last is not None:
            self._run_work(self._last)

    def _run_work(self, work: Callable[[], float | None]) -> float | None:
        """Run `work`; the seconds to wait, None after an error. No error ends the thread."""
        try:
            close_old_connections()  # the server may have closed the thread's own
            seconds = work()
        except UNAVAILABLE as error:
            # After a stop an unavailable server is expected, because it may end with the process.
            # Other errors are logged all the same.
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
