"""A daemon is a loop around one `turn()`.

The loop owns what every role needs: signals (the first drains, the second kills), waiting that a
signal ends at once, clean database connections, heartbeats, and patience while Redis or the
database is unavailable. Tests drive the turn, never the loop.
"""

import _thread
import os
import signal
import threading
import time
from types import FrameType
from typing import Any

from django.db import close_old_connections
from django.utils.module_loading import import_string

from msgplatform.core import daemons, logging
from msgplatform.core.daemons import thread_loop
from msgplatform.core.daemons.heartbeats import WITHDRAW_SECONDS, Heartbeat, beat
from msgplatform.core.daemons.wake_signal import Listener, WakeSignal
from msgplatform.core.data import cell_record
from msgplatform.core.errors import UNAVAILABLE
from msgplatform.core.rates.backoff import Backoff

log = logging.get(__name__)


class Stop:
    """The flag that SIGTERM and SIGINT set. Setting the flag ends a wait at once."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._woken = threading.Event()  # by a signal or by new work
        self._previous: dict[int, Any] = {}

    def install(self) -> None:
        """Install the handler. The first SIGTERM or SIGINT asks to drain, the second kills."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._previous[number] = signal.signal(number, self._handle)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        for signal_number in self._previous:
            signal.signal(signal_number, signal.SIG_DFL)
        # Use a thread: the interrupted thread may hold the lock of the event or the log, and would
        # wait for itself.
        _thread.start_new_thread(self._begin, (number,))

    def _begin(self, number: int) -> None:
        self.set()
        log.info("draining", signal=signal.Signals(number).name)

    def set(self) -> None:
        self._event.set()
        self._woken.set()

    def wake(self) -> None:
        """There is new work: end `wait_for_work`, now or the next time."""
        self._woken.set()

    def __bool__(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds`; True when asked to stop."""
        return self._event.wait(seconds)

    def wait_for_work(self, seconds: float) -> None:
        """Wait at most `seconds`, less when asked to stop or when there is new work."""
        self._woken.wait(seconds)
        self._woken.clear()


class Worker:
    """Base of the roles. `turn()` does one bounded piece of work; True if there was any.

    `start()` and `stop()` frame the loop in the process that runs it; `drain(deadline)` finishes
    the work in flight, and is called once after the first signal.
    """

    role = ""
    # The longest wait between two turns that find nothing to do. New work sends a wake-up signal;
    # the wait is for signals that are lost, and for work that becomes due by itself.
    idle_seconds = 2.0
    # True if the process also runs the watch, which needs the database and the work Redis.
    watches = True
    # True if the first id must not wait for the database. Each such process takes an id node.
    needs_ids_at_once = False
    # Sent by programs that make work for this role. A role without a signal polls.
    wake_signal: WakeSignal | None = None

    def __init__(self) -> None:
        self.heartbeat = Heartbeat(self.role)
        self.stopping = Stop()

    def start(self) -> None: ...

    def turn(self) -> bool:
        raise NotImplementedError

    def drain(self, deadline: float) -> None: ...

    def stop(self) -> None: ...


class Loop:
    """Runs a worker until it is asked to stop."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.idle = Backoff(first=0.02, factor=1.3, cap=worker.idle_seconds)
        self.trouble = Backoff(first=0.2, factor=2.0, cap=10.0)
        # A server that is away may answer again any moment.
        self.away = Backoff(first=0.2, factor=2.0, cap=thread_loop.MAX_AWAY_PAUSE, jitter=0.0)
        self.heartbeat_thread = beat(worker.heartbeat)
        # The watch has its own thread, so that a hanging database delays no work.
        names = daemons.threads if worker.watches else ()
        self.threads: list[thread_loop.ThreadLoop] = [
            import_string(name)(worker.role) for name in names
        ]
        # The database of a program that watches must be of its cell.
        self.is_in_its_cell = not worker.watches
        if worker.wake_signal:
            self.threads.append(Listener(worker.wake_signal, worker.stopping.wake))

    def run(self, drain_seconds: float) -> None:
        worker = self.worker
        log.info("started", role=worker.role, pid=os.getpid())
        self.heartbeat_thread.start()
        for thread in self.threads:
            thread.start()
        try:
            worker.start()
            while not worker.stopping:
                if (seconds := self._one_turn()) > 0:
                    worker.stopping.wait_for_work(seconds)
            worker.drain(time.monotonic() + drain_seconds)
        finally:
            # A thread that hangs in a server's call is a daemon thread, and ends with the process.
            worker.stop()
            for thread in self.threads:
                thread.stop()
            self.heartbeat_thread.stop(WITHDRAW_SECONDS)
            log.info("stopped", role=worker.role, done=worker.heartbeat.done)

    def _one_turn(self) -> float:
        """Run one turn; the seconds to wait before the next."""
        close_old_connections()  # before the turn: the server may have closed idle ones
        thread_loop.begin_turn(self.worker.role)
        try:
            if not self.is_in_its_cell:  # the database did not answer at the start
                cell_record.check()
                self.is_in_its_cell = True
            did_work = self.worker.turn()
        except cell_record.WrongCell:
            raise
        except Exception as error:  # noqa: BLE001 - logged there
            self._report(error)
            return 0.0
        finally:
            close_old_connections()
        thread_loop.end_turn(self.worker.role)
        self.trouble.reset()
        self.away.reset()
        if did_work:
            self.idle.reset()
            return 0.0
        return self.idle.next()

    def _report(self, error: Exception) -> None:
        """Log the error of a turn, and pause. New work does not shorten the pause, since it would
        fail too."""
        role = self.worker.role
        thread_loop.fail_turn(role, error)
        lack = thread_loop.lack_of_migrations(error) if self.worker.watches else ""
        if lack or isinstance(error, UNAVAILABLE):
            pause = self.away.next()
            log.warning("waiting", role=role, why=lack or str(error)[:200], pause=pause)
        else:
            # The worker has postponed the unit that raised: the next turn begins with other units.
            pause = self.trouble.next()
            self.worker.heartbeat.failed += 1
            log.error("turn_failed", role=role, exc_info=error)
        close_old_connections()
        self.worker.stopping.wait(pause)
