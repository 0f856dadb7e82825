"""A run of the demo as the scenarios of the flows see it, and the contract of a scenario."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from django.conf import settings

from msgplatform.core.daemons.thread_loop import ThreadLoop

# A trickle keeps its pace for so many seconds, then goes on at a twentieth of it: a demo that runs
# for days fills no disk.
_BRISK_SECONDS = 3 * 3600
_SLOWER = 20
_PROGRESS_SECONDS = 5.0  # between two lines of a flow
_LOOK_SECONDS = 0.3
# Further flows have theirs in a module `demo` beside their `flow`.
_MODULES = {
    "notify": "demo.notify.scenario", "notify.feed": "demo.feed.scenario",
    "gateway": "demo.sms.scenario", "crmsync": "demo.crmsync.scenario",
}  # fmt: skip


@dataclass(frozen=True)
class Scenario:
    """A flow's part of the demo.

    `play` sends real traffic, and returns its account: at least `accepted` and `lost`. A run with
    fewer than `at_least` accepted messages (1,000 without it), or with a `problem`, has failed.
    """

    flow: str
    play: Callable[[Run], Mapping[str, Any]]
    environment: Callable[[], Mapping[str, str]] = dict  # variables that it needs
    environment_prefix: str = ""  # of the flow's variables, which the demo does not inherit


def scenarios() -> list[Scenario]:
    """The parts of the flows that run."""
    return [import_module(_MODULES.get(app, f"{app}.demo")).SCENARIO for app in settings.FLOWS]


@dataclass
class Run:
    """The API's address, a scale, a folder, and output. Each flow has a thread of its own.

    `timeout` are the seconds within which everything must be accounted for. `until_end` is closed
    with the demo: receivers stay as long as the platform runs.
    """

    base_url: str
    messages: int
    folder: Path
    timeout: float
    until_end: ExitStack = field(default_factory=ExitStack)
    trickles: list[Trickle] = field(default_factory=list)
    _set_up: threading.Condition = field(default_factory=threading.Condition)
    _ready_threads: set[int] = field(default_factory=set)  # of flows that have made their rows
    _progress: dict[str, tuple[float, str]] = field(default_factory=dict)  # flow → its last line

    def say(self, text: str) -> None:
        """Print on standard error, by one write: standard output is for the result."""
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def progress(self, flow: str, text: str) -> None:
        """Say how far a flow is: at most every few seconds, and nothing twice in a row."""
        printed_at, last = self._progress.get(flow, (0.0, ""))
        if text != last and time.monotonic() - printed_at >= _PROGRESS_SECONDS:
            self._progress[flow] = time.monotonic(), text
            self.say(f"{flow}: {text}")

    def start_together(self) -> None:
        """Wait for the rows of all flows: SQLite has one writer, whom traffic keeps busy."""
        self.be_ready()
        count = len(settings.FLOWS)
        with self._set_up:
            self._set_up.wait_for(lambda: len(self._ready_threads) == count, self.timeout)

    def be_ready(self) -> None:
        """The flow of this thread has made its rows, or has ended."""
        with self._set_up:
            self._ready_threads.add(threading.get_ident())
            self._set_up.notify_all()

    def wait_for_none(self, flow: str, count: Callable[[], int], what: str) -> bool:
        """Wait until `count` is 0; False when it is not within the time of the run."""
        deadline = time.monotonic() + self.timeout
        while number := count():
            if time.monotonic() > deadline:
                return False
            self.progress(flow, f"{number:,} {what}")
            time.sleep(_LOOK_SECONDS)
        return True

    def trickle(self, name: str, step: Callable[[int], None], seconds: float) -> None:
        """After the accounting, until the demo is stopped: call `step` with 0, 1, 2 … every so many
        seconds, in a thread of its own. A step that raises is called again with its number."""
        self.trickles.append(Trickle(name, step, seconds))


class Trickle:
    """Traffic that goes on after the accounting (`Run.trickle`)."""

    def __init__(self, name: str, step: Callable[[int], None], seconds: float) -> None:
        self._step, self._seconds = step, seconds
        self._number = 0
        self._loop = ThreadLoop(f"demo-{name}", self._turn)
        self.start, self.stop = self._loop.start, self._loop.stop

    def _turn(self) -> float:
        self._step(self._number)
        self._number += 1
        is_brisk = self._number * self._seconds < _BRISK_SECONDS
        return self._seconds if is_brisk else self._seconds * _SLOWER
