"""The command of a daemon, and `--processes N`: several processes under one command.

Each child runs the same command line for one process, dies with the parent, and is started again
when it ends by itself. The parent only waits, and opens no connection. It ends if every child
refuses its first start, such as for a wrong option, as one process would.
"""

import math
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from msgplatform import env
from msgplatform.core import logging
from msgplatform.core.daemons import structs
from msgplatform.core.daemons.daemon import Loop, Worker
from msgplatform.core.data import cell_record, ids
from msgplatform.core.rates.backoff import Backoff
from msgplatform.core.servers import child_process

log = logging.get(__name__)

MAX_PROCESSES = 64  # of one command
_LOOK_SECONDS = 0.5
# After a child has run this long, its pause begins at the shortest again.
_LONG_RUN_SECONDS = 10.0
_START_SECONDS = 60.0  # a child that ends later has not refused its start, even on a busy machine
_REFUSALS = frozenset({1, 2})  # exit codes of a command that ends with an error, or for its options


class Copy:
    """A child process, with the time of its next start."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = child_process.command(command)
        self._pause = Backoff(first=0.25, factor=2.0, cap=10.0)
        self._started = self._next_start = 0.0
        self.process: subprocess.Popen[bytes] | None = None
        self.first_code: int | None = None  # of the first process if that ended soon, else 0

    def keep_running(self) -> None:
        """Start the process unless it runs or its pause lasts."""
        now = time.monotonic()
        if self.process is not None:
            if self.process.poll() is None:
                if self.first_code and now - self._started > _START_SECONDS:
                    self.first_code = 0  # a later process works
                return
            code = self.process.returncode
            log.warning("copy_ended", code=code)
            if now - self._started > _LONG_RUN_SECONDS:
                self._pause.reset()
            if self.first_code is None:
                self.first_code = code if now - self._started < _START_SECONDS else 0
            self._next_start = now + self._pause.next()
            self.process = None
        if now >= self._next_start:
            self._started = now
            # A process group of its own: Ctrl-C reaches only the parent, so that a child gets one
            # signal.
            try:
                self.process = subprocess.Popen(self._command, process_group=0)  # noqa: S603 - our own
            except OSError as error:  # no memory or process is left: the other copies go on
                log.warning("copy_not_started", why=str(error))
                self._next_start = now + self._pause.next()

    def signal(self, number: int) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def wait(self) -> None:
        if self.process is not None:
            self.process.wait()


class Copies:
    """Runs `count` processes of `command` until SIGTERM or SIGINT. A second signal kills them.
    Raises CommandError if all refuse their first start."""

    def __init__(self, command: Sequence[str], count: int) -> None:
        self._copies = [Copy(command) for _ in range(count)]
        # Not an Event: the handler interrupts the waiting thread, which may hold the event's lock.
        self._stopping = False

    def run(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)
        while not self._stopping:
            for copy in self._copies:
                copy.keep_running()
            if self._copies and all(copy.first_code in _REFUSALS for copy in self._copies):
                break
            time.sleep(_LOOK_SECONDS)
        # Signal all children before waiting, so that they drain at the same time.
        for copy in self._copies:
            copy.signal(signal.SIGTERM)
        for copy in self._copies:
            copy.wait()
        if not self._stopping:
            raise CommandError(
                f"All {len(self._copies)} processes ended at their start; see the lines before."
            )

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self._stopping:  # the second signal: the children's own drain takes too long
            for copy in self._copies:
                copy.signal(signal.SIGKILL)
        self._stopping = True


class DaemonCommand(BaseCommand):
    """Base of every `run_*` command: parses options, builds one worker, runs the loop."""

    requires_system_checks = []  # run explicitly below, so that a wrong setting is one sentence
    worker_class: Callable[[], Worker]  # of a role without options of its own

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--drain-seconds",
            type=float,
            default=20.0,
            help="how long the first SIGTERM may take to finish what is in hand (default 20)",
        )
        parser.add_argument(
            "--processes", type=int, default=1, help="run this many of them (default 1)"
        )

    def worker(self, **options: Any) -> Worker:
        """The role's worker, built from the command's options."""
        return self.worker_class()

    def handle(self, *args: Any, **options: Any) -> None:
        # Django's own checks are about models and templates, which are the same at each start of a
        # release; they would take half as long as the rest of a start from here on.
        self.check(tags=[env.CHECKS_TAG])
        if not 1 <= options["processes"] <= MAX_PROCESSES:
            raise CommandError(f"--processes must be 1 to {MAX_PROCESSES}")
        drain_seconds: float = options["drain_seconds"]
        if not 0 <= drain_seconds < math.inf:
            raise CommandError("--drain-seconds must be a number that is not negative")
        if options["processes"] > 1:
            # The last value counts, also after the abbreviation `--process 4`.
            single = [sys.executable, *sys.orig_argv[1:], "--processes=1"]
            Copies(single, options["processes"]).run()
            return
        structs.prepare()
        worker = self.worker(**options)
        worker.stopping.install()
        loop = Loop(worker)
        try:
            loop.is_in_its_cell = loop.is_in_its_cell or cell_record.check_if_readable()
            ids.keep_ahead(at_once=worker.needs_ids_at_once)
            loop.run(drain_seconds)
        except cell_record.WrongCell as error:
            raise CommandError(str(error)) from error
