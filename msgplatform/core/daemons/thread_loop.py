"""A thread beside a daemon's loop, for work that may hang with a server; and the standstills of the
parts of this process, with their reasons, for the heartbeat.

A part is the loop of a daemon, or a thread beside the loop. A part stands still from the beginning
of a failed turn until a turn ends without an error.
"""

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from django.db import DatabaseError, close_old_connections, connections
from redis.exceptions import ConnectionError, TimeoutError

from msgplatform.core import logging
from msgplatform.core.data import engines
from msgplatform.core.data.engines.contract import Fault
from msgplatform.core.errors import UNAVAILABLE, Temporary, Unavailable
from msgplatform.core.rates.backoff import Backoff

log = logging.get(__name__)

# The longest pause (seconds) while a server is away, so that work goes on soon after.
MAX_AWAY_PAUSE = 2.0
_MAX_REASON = 300
# Seconds between looks for missing migrations: each look reads the files of all migrations.
_LOOK_SECONDS = 10.0
_last_look: tuple[float, str] | None = None  # time (monotonic) and sentence of the last look


class Standstill(NamedTuple):
    since: float = 0.0  # unix seconds; 0: nothing stands still
    part: str = ""
    why: str = ""  # '' while the turn goes on


standstills: dict[str, Standstill] = {}  # by part


def begin_turn(part: str) -> None:
    """A turn begins. A turn that never ends counts from here."""
    standstills.setdefault(part, Standstill(time.time(), part))


def end_turn(part: str) -> None:
    """A turn has ended well."""
    standstills.pop(part, None)


def fail_turn(part: str, error: BaseException) -> None:
    """A turn has failed. A silent Redis is left out, because it has an alert of its own."""
    if isinstance(error, ConnectionError | TimeoutError):
        end_turn(part)
        return
    begin_turn(part)
    why = f"{type(error).__name__}: {error}"[:_MAX_REASON]
    standstills[part] = standstills[part]._replace(why=why)


def longest_standstill() -> Standstill:
    """The part that has stood still longest; parts with a reason come first."""
    parts = list(standstills.values())
    return min(parts, key=lambda part: (not part.why, part.since), default=Standstill())


def lack_of_migrations(error: Exception) -> str:
    """A sentence when the error comes from missing migrations of the main database, else ''."""
    global _last_look
    is_of_schema = engines.fault(error) in (Fault.NO_TABLE, Fault.NO_COLUMN)
    if not isinstance(error, DatabaseError) or not is_of_schema:
        return ""
    if _last_look is None or time.monotonic() - _last_look[0] > _LOOK_SECONDS:
        # Imported here, because a program asks only after an error.
        from msgplatform.core.data import migration_stages

        try:
            count = migration_stages.count_open(connections["default"])
        except DatabaseError:
            count = 0
        lack = f"the database lacks {count} migrations: run manage.py migrate" if count else ""
        _last_look = time.monotonic(), lack
    return _last_look[1]


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
        end_turn(self._name)
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
            fail_turn(self._name, error)
            if work is not self._turn or not self._stopping.is_set() or not of_server:
                why = lack_of_migrations(error) or str(error)[:200]
                log.warning("thread_waits", thread=self._name, why=why)
            return None
        except Exception as error:
            fail_turn(self._name, error)
            if why := lack_of_migrations(error):
                log.warning("thread_waits", thread=self._name, why=why)
            else:
                log.exception("thread_failed", thread=self._name)
            return None
        finally:
            close_old_connections()
        end_turn(self._name)
        return self._every if seconds is None else seconds
