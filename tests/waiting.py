"""How long a test waits between two looks at something that will be so, and processes that stand
still."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

MAX_SECONDS = 0.5
_STOPPED = "TtZX"  # proc(5): stopped, or ended


def pause(begun: float, first_seconds: float) -> None:
    """Sleep between two looks of a wait that has `begun` at this monotonic time: `first_seconds`,
    and later a twentieth of the wait so far, up to MAX_SECONDS. A look takes processors from the
    programs that are waited for."""
    waited = time.monotonic() - begun
    time.sleep(max(first_seconds, min(MAX_SECONDS, waited / 20)))


def freeze(*pids: int) -> None:
    """Stop these processes (SIGSTOP); those that have ended are passed over. Returns when each of
    their threads stands still: on a busy machine a thread goes on until it gets a core again."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    begun = time.monotonic()
    while any(set(_thread_states(pid)) - set(_STOPPED) for pid in pids):
        assert time.monotonic() < begun + 60, "a process does not stop"
        pause(begun, 0.002)


def _thread_states(pid: int) -> str:
    states = ""
    for file in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):  # the thread has ended
            states += file.read_text().rpartition(")")[2].split()[0]
    return states
