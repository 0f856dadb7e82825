"""To wait until somebody waits for a lock of the database, and to be waited for."""

import time

import pytest
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


def let_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have connections that are made from now on wait for a lock as long as a test may hold it,
    which on a busy machine is longer than the five seconds of a program (MariaDB)."""
    options = connection.settings_dict["OPTIONS"]
    usual = "innodb_lock_wait_timeout"
    patient = str(options["init_command"]).replace(f"{usual}=5", f"{usual}={SECONDS:.0f}")
    monkeypatch.setitem(options, "init_command", patient)
