"""How much a database server has to do."""

from __future__ import annotations

from django.db import connections


def running_statements(using: str = "default") -> int:
    """How many statements the server runs at this moment, without this one; 0 on SQLite, which
    has no server. Needs no privilege."""
    if connections[using].vendor != "mysql":
        return 0
    with connections[using].cursor() as cursor:
        cursor.execute("SHOW GLOBAL STATUS LIKE 'Threads_running'")
        ((_, running),) = cursor.fetchall()
    return max(0, int(running) - 1)
