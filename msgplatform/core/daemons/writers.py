"""The database server to which each process writes.

In a cluster one server takes all writes, because row locks hold on one server only: two programs on
two servers could lock the same row, and both commit. A process reports its server every few
seconds; the watch compares.
"""

import os
import socket
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from msgplatform.core.connections import RedisError, work_redis
from msgplatform.core.daemons.presence import Presence
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.data import server

REPORT_SECONDS = 5.0
# Less than the time between two looks, so that only one look of the watch sees an ended process.
_TTL_SECONDS = 12.0
_HOST = socket.gethostname()


class Writer(msgspec.Struct, frozen=True):
    """A process; `node` is `host:port` of its server."""

    program: str
    host: str
    node: str


_writers = Presence(work_redis, "platform:writers", Writer, _TTL_SECONDS)


def report(program: str) -> None:
    """Report the server of this process; a database in a file has none. An unavailable Redis is
    ignored."""
    if node := server.node():
        with suppress(RedisError):
            _writers.report({f"{program}:{_HOST}:{os.getpid()}": Writer(program, _HOST, node)})


def keep_reporting(program: str) -> None:
    """Report the server every few seconds, in a thread: for a process without a watch."""

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
