"""The database server behind this process's connections: its address, and whether it works; and the
server to which each process writes.

In a cluster one server takes all writes, because row locks hold on one server only: two programs on
two servers could lock the same row, and both commit. A process reports its server every few
seconds; the watch compares.
"""

import os
import socket
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from functools import cache

import msgspec
from django.apps import apps
from django.db import DEFAULT_DB_ALIAS, connections, router
from django.db.utils import ProgrammingError

from msgplatform.core.connections import RedisError, work_redis
from msgplatform.core.daemons.presence import Presence
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.data import engines
from msgplatform.core.data.engines.contract import Cluster, Fault

REPORT_SECONDS = 5.0
# Less than the time between two looks, so that only one look of the watch sees an ended process.
_TTL_SECONDS = 12.0
_HOST = socket.gethostname()
nodes: dict[str, str] = {}  # alias → the server of the newest connection


def ask(using: str = DEFAULT_DB_ALIAS) -> None:
    """Ask the server a question that only a working server answers. Raises OperationalError."""
    try:
        with connections[using].cursor() as cursor:
            cursor.execute(engines.of(using).question)
            cursor.fetchone()
    except ProgrammingError as error:
        if engines.fault(error) is not Fault.NO_TABLE:  # before `migrate`
            raise


@cache  # of a database that lacks nothing: `migrate --before` of the next release only adds
def check_columns() -> None:
    """Raise DatabaseError while the main database lacks a table or column of this release."""
    connection = connections[DEFAULT_DB_ALIAS]
    quote = connection.ops.quote_name
    with connection.cursor() as cursor:
        for model in apps.get_models(include_auto_created=True):
            meta = model._meta
            is_here = router.allow_migrate_model(connection.alias, model)
            if meta.proxy or not meta.managed or not is_here:
                continue
            # With its table, since SQLite takes an unknown name in quotes for a text.
            table = quote(meta.db_table)
            names = ", ".join(
                f"{table}.{quote(field.column)}"
                for field in meta.local_concrete_fields
                if field.column
            )
            cursor.execute(f"SELECT {names} FROM {table} WHERE 1 = 0")  # noqa: S608 - of our models


def note(alias: str, node: str) -> None:
    """Note the server of a new connection, `host:port` by the server's own name."""
    nodes[alias] = node


def cluster(using: str = DEFAULT_DB_ALIAS) -> Cluster | None:
    """The server's cluster; None for a single server. Raises OperationalError."""
    return engines.of(using).cluster(connections[using])


# -- all processes -------------------------------------------------------------------------------
class Writer(msgspec.Struct, frozen=True):
    """A process; `node` is `host:port` of its server."""

    program: str
    host: str
    node: str


writers = Presence(work_redis, "platform:writers", Writer, _TTL_SECONDS)


def report(program: str) -> None:
    """Report the server of this process; a database in a file has none, nor has a process before
    its first connection. An unavailable Redis is ignored."""
    if node := nodes.get(DEFAULT_DB_ALIAS):
        with suppress(RedisError):
            writers.report({f"{program}:{_HOST}:{os.getpid()}": Writer(program, _HOST, node)})


def keep_reporting(program: str) -> None:
    """Report the server every few seconds, in a thread: for a process without a watch."""

    def turn() -> None:
        ask()
        report(program)

    ThreadLoop("writer", turn, every=REPORT_SECONDS).start()


def programs_by_node() -> Mapping[str, list[str]]:
    """Server → the programs that write to it, as `program (host)`. Raises RedisError."""
    programs: defaultdict[str, set[str]] = defaultdict(set)
    for writer in writers.read().values():
        programs[writer.node].add(f"{writer.program} ({writer.host})")
    return {node: sorted(programs[node]) for node in sorted(programs)}
