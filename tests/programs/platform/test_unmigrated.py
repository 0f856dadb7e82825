"""A program of a new release, started before `migrate`, says what is to be done, and waits."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from msgplatform.core.logged_errors import unexpected_errors
from msgplatform.core.servers.embedded import MariaDb
from tests.cluster import ROOT

COMMANDS = ("run_sender", "run_maker", "run_data_pump", "run_feed_dispatcher", "run_sync_poller")
SENTENCE = "manage.py migrate"


@pytest.mark.usefixtures("work_redis", "sms_redis")
@pytest.mark.parametrize("kind", ["sqlite", "mariadb"])
def test_it_names_the_command_and_no_column(kind: str, mariadb: MariaDb, tmp_path: Path) -> None:
    is_mariadb = kind == "mariadb"
    url = mariadb.create("unmigrated") if is_mariadb else f"sqlite:///{tmp_path / 'empty.db'}"
    environment = {**os.environ, "DATABASE_URL": url, "STATE_DIR": str(tmp_path)}
    logs = {name: tmp_path / f"{name}.log" for name in COMMANDS}
    running = []
    try:
        for name, path in logs.items():
            with path.open("w") as log:
                program = [sys.executable, "manage.py", name]
                running.append(subprocess.Popen(program, cwd=ROOT, env=environment, stderr=log))
        deadline = time.monotonic() + 120
        while silent := [name for name, log in logs.items() if SENTENCE not in log.read_text()]:
            assert time.monotonic() < deadline, [logs[name].read_text() for name in silent]
            time.sleep(0.1)
        assert all(process.poll() is None for process in running), "they wait"
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert unexpected_errors(tmp_path, {"open_alerts_not_read"}) == []
