"""Workers learn here that the web server begins to stop, and end when it is killed.

Granian's workers refuse new connections and wait for requests in flight; nothing in Python learns
of it. So its parent holds one end of a pipe that all workers inherit: when it closes that end, the
event loop of each worker reads the end of the file.

The kernel's "die with your parent" is not inherited by a fork, so each worker asks for it. A worker
without it goes on after a SIGKILL of the server, and keeps the socket from the next one.
"""

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any

from msgplatform.core.servers import child_process

# The pipe's ends for reading and for writing. A worker has the first; a process that was not forked
# by this server has none.
_ends: list[int] = []


def prepare(listener: socket.socket) -> None:
    """Make the pipe. The signals that end the server close it, and the parent's copy of the
    listening socket, so that connections are refused once no worker accepts any. The parent calls
    this after its own handlers are set and before it forks."""
    _ends[:] = os.pipe()
    server_pid = os.getpid()

    def prepare_worker() -> None:
        if len(_ends) == 2:  # forked by the server itself, not by a worker
            child_process.die_with_parent(server_pid)
            _close_writing_end()

    os.register_at_fork(after_in_child=prepare_worker)
    for number in (signal.SIGINT, signal.SIGTERM):
        handler: Any = signal.getsignal(number)

        def handle(signal_number: int, frame: FrameType | None, handler: Any = handler) -> None:
            _close_writing_end()
            listener.close()
            handler(signal_number, frame)

        signal.signal(number, handle)


def _close_writing_end() -> None:
    if len(_ends) == 2:
        os.close(_ends.pop())


def call_at_stop(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Call `call` in the loop when the server begins to stop or has died."""
    if not _ends:
        return
    end = _ends[0]

    def stop() -> None:
        loop.remove_reader(end)
        call()

    loop.add_reader(end, stop)
