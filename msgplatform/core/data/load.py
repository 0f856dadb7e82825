"""How busy a database server is."""

from __future__ import annotations

from django.db import connection


def running_statements() -> int:
    """How many statements the server runs at this moment, without this one; 0 on SQLite, which
    has no server. Needs no privilege."""
    if connection.vendor != "mysql":
        return 0
    with connection.cursor() as cursor:
        cursor.execute("SHOW GLOBAL STATUS LIKE 'Threads_running'")
        ((_, running),) = cursor.fetchall()
    return max(0, int(running) - 1)


def running_connections() -> set[int]:
    """The connections that run a statement at this moment, without this one; none on SQLite.

    Connections of other database users are only seen with the privilege PROCESS.
    """
    if connection.vendor != "mysql":
        return set()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id FROM information_schema.processlist "
            "WHERE command IN ('Query', 'Execute') AND id <> CONNECTION_ID()"
        )
        return {number for (number,) in cursor.fetchall()}


def connection_id() -> int:
    """The server's number of this thread's open connection; 0 when it has none. Asks nobody."""
    if connection.vendor != "mysql" or connection.connection is None:
        return 0
    return int(connection.connection.thread_id())
