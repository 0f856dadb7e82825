"""Tells the workers that the web server begins to stop.

Granian's workers refuse new connections and wait for requests in flight; nothing in Python learns
of it. So its parent holds one end of a pipe that all workers inherit: when it closes that end, the
event loop of each worker reads the end of the file.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

_ends: list[int] = []  # for reading, for writing; none where no server of ours is the parent


def prepare() -> None:
    """Make the pipe. For the parent, before it forks."""
    _ends[:] = os.pipe()
    os.register_at_fork(after_in_child=_close)


def announce() -> None:
    """The server stops; may be called again, and in a signal handler."""
    _close()


def _close() -> None:
    if len(_ends) == 2:
        os.close(_ends.pop())


def call_at_stop(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Call `call` in the loop when the parent announces the stop, or has died."""
    if not _ends:
        return
    end = _ends[0]

    def stop() -> None:
        loop.remove_reader(end)
        call()

    loop.add_reader(end, stop)
