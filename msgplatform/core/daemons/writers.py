"""The server of the database to which each process writes.

In a cluster one server takes all writes: row locks are of one server, so two programs that write to
two servers lock the same row, and both commit. A process reports every few seconds; the watch
compares.
"""

from __future__ import annotations

import os
import socket
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from msgplatform.core.connections import RedisError, work_redis
from msgplatform.core.daemons.presence import Presence
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.data import server

REPORT_SECONDS = 5.0
# Less than the time between two looks of the watch: a process that ended is seen by one of them.
_TTL_SECONDS = 12.0
_HOST = socket.gethostname()


@dataclass(frozen=True)
class Writer:
    """A process; `node` is `host:port` of its server."""

    program: str
    host: str
    node: str


_writers = Presence(work_redis, "platform:writers", Writer, _TTL_SECONDS)


def report(program: str) -> None:
    """Report the server of this process, if its database is one. A Redis that is unavailable is no
    reason to stop working."""
    if node := server.node():
        with suppress(RedisError):
            _writers.report({f"{program}:{_HOST}:{os.getpid()}": Writer(program, _HOST, node)})


def keep_reporting(program: str) -> None:
    """Ask the server and report it every few seconds, in a thread: for a process without a
    watch."""

    def turn() -> None:
        server.ask()
        report(program)

    ThreadLoop("writer", turn, every=REPORT_SECONDS).start()


def programs_by_node() -> Mapping[str, list[str]]:
    """Server → the programs that write to it, as `program (host)`. Raises RedisError."""
    programs: defaultdict[str, set[str]] = defaultdict(set)
    for writer in _writers.read().values():
        programs[writer.node].add(f"{writer.program} ({writer.host})")
    return {node: sorted(programs[node]) for node in sorted(programs)}
