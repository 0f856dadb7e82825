"""To wait until somebody waits for a lock of the database."""

from __future__ import annotations

import time

from django.db import connection

SECONDS = 120.0


def until_somebody_waits() -> None:
    """On MariaDB. On SQLite nobody writes beside another anyway, and nothing tells of it."""
    if connection.vendor != "mysql":
        return
    deadline = time.monotonic() + SECONDS
    waiting = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
    with connection.cursor() as cursor:
        while True:
            cursor.execute(waiting)
            if cursor.fetchone() != (0,):
                return
            assert time.monotonic() < deadline, "no transaction waits"
            time.sleep(0.15)  # asked more often, it says the same for ever
