"""The processes of one stretch: started in order, CPU and memory read, stopped in order."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import psutil

from msgplatform.core.errors import Permanent, PlatformError
from msgplatform.core.servers import child_process
from msgplatform.core.servers.private_server import tail

_STOP_SECONDS = 120.0  # some programs drain for a minute
_READY_SECONDS = 180.0


class BenchFailed(Permanent):
    """The bench has no result: a process died, or something was lost."""


@dataclass(frozen=True)
class Program:
    """A process to start. `load`: it makes or takes in the work, and is not measured."""

    label: str
    argv: Sequence[str]
    environment: Mapping[str, str]
    load: bool = False
    ready: Callable[[], bool] = lambda: True


class Crew:
    """Programs as running processes; the end of the block stops them, the last one first."""

    def __init__(self, programs: Iterable[Program], folder: Path, directory: Path) -> None:
        self._programs = {program.label: program for program in programs}
        self._folder, self._directory = folder, directory
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._stopped: set[str] = set()

    def __enter__(self) -> Self:
        try:
            for program in self._programs.values():
                self._start(program)
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error:
            self._kill()
        else:
            self.stop(*self._processes)

    def stop(self, *labels: str) -> None:
        """Send SIGTERM and wait for the end of one after the other, the last of `labels` first."""
        for label in reversed(labels):
            process = self._processes[label]
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            try:
                code = process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                raise BenchFailed(f"{label} did not end\n{self._tail(label)}") from None
            # A program without a handler of its own ends by the signal, which is as good.
            if code not in (0, -signal.SIGTERM):
                raise BenchFailed(f"{label} ended with {code}\n{self._tail(label)}")
            self._stopped.add(label)

    def add(self, *programs: Program) -> None:
        """Start more programs. One with the label of a program that has ended takes its place."""
        for program in programs:
            self._programs[program.label] = program
            self._start(program)

    def restart(self, label: str, is_killed: bool = False) -> None:
        """End a program by SIGTERM, or with its children by SIGKILL, and start it again; its log
        goes on."""
        if is_killed:
            for each in _tree(self._processes[label].pid):
                each.kill()
            self._processes[label].wait()
        else:
            self.stop(label)
        self._start(self._programs[label], "ab")

    def check(self, *ended: str) -> None:
        """Raises BenchFailed when a process has ended that is not among `ended` and was not
        stopped."""
        for label, process in self._processes.items():
            if process.poll() is not None and label not in self._stopped.union(ended):
                raise BenchFailed(f"{label} ended with {process.poll()}\n{self._tail(label)}")

    def printed(self, label: str) -> Any:
        """The JSON that a program has printed at its end."""
        return json.loads(self._out(label).read_text())

    def cpu_seconds(self) -> dict[str, float]:
        """CPU that each process has used so far, with its children."""
        return {label: cpu_seconds(p.pid) for label, p in self._processes.items()}

    def pss_mb(self) -> float:
        """Memory of the measured side: the sum of PSS over its processes, in MB (10^6 bytes)."""
        pids = [self._processes[p.label].pid for p in self._programs.values() if not p.load]
        return sum(_pss(process.pid) for pid in pids for process in _tree(pid)) / 1e6

    def trees(self) -> dict[str, list[psutil.Process]]:
        """The processes of each program that runs: itself and its children."""
        return {label: _tree(p.pid) for label, p in self._processes.items() if p.poll() is None}

    def labels(self, load: bool) -> list[str]:
        return [p.label for p in self._programs.values() if p.load == load]

    def output(self) -> str:
        """The last lines of each program's output and log."""
        return "\n".join(f"--- {label}\n{self._tail(label)}" for label in self._processes)

    # -- one process -----------------------------------------------------------------------------
    def _start(self, program: Program, mode: Literal["wb", "ab"] = "wb") -> None:
        with self._out(program.label).open(mode) as out, self._log(program.label).open(mode) as log:
            self._processes[program.label] = subprocess.Popen(
                child_process.command(program.argv, "--parent", str(os.getpid())),
                cwd=self._directory,
                env=dict(program.environment),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                process_group=0,  # so that Ctrl-C reaches only us: we stop them in order
            )
        self._stopped.discard(program.label)
        deadline = time.monotonic() + _READY_SECONDS
        while not program.ready():
            self.check()
            if time.monotonic() > deadline:
                raise BenchFailed(f"{program.label} is not ready\n{self._tail(program.label)}")
            time.sleep(0.01)

    def _kill(self) -> None:
        # With their children: nobody else would end these.
        for process in self._processes.values():
            for each in _tree(process.pid) if process.poll() is None else []:
                each.kill()
            process.wait()

    def _out(self, label: str) -> Path:
        return self._folder / f"{label}.out"

    def _log(self, label: str) -> Path:
        return self._folder / f"{label}.log"

    def _tail(self, label: str) -> str:
        return f"{tail(self._out(label))}\n{tail(self._log(label))}"


def exit_after(main: Callable[[], None]) -> None:
    """Run a bench's process: an error of the platform is its last line, Ctrl-C is no error."""
    try:
        main()
    except PlatformError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and its children, also of those that have ended."""
    total = 0.0
    for process in _tree(pid):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
        if process.pid == pid:
            total += times.children_user + times.children_system
    return total


def _tree(pid: int) -> list[psutil.Process]:
    try:
        first = psutil.Process(pid)
        return [first, *first.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _pss(pid: int) -> int:
    """Private memory, and a fair share of what several processes have in common; in bytes."""
    try:
        return int(psutil.Process(pid).memory_full_info().pss)
    except psutil.NoSuchProcess:
        return 0
