"""A program of a new release, started before `migrate`, says what is to be done, and waits."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.harness.mariadb import MariaDb
from msgplatform.core.servers.logged_errors import unexpected_errors
from msgplatform.core.servers.private_server import free_port
from tests.cluster import ROOT
from tests.program_host import run_program, start_program

COMMANDS = ("run_sender", "run_maker", "run_data_pump", "run_feed_dispatcher", "run_sync_poller")
SENTENCE = "manage.py migrate"
FIRST_START = """
import django
django.setup()
from django.core import checks
from django.core.checks import Error
from msgplatform.operation.supervision import preparation
from msgplatform.operation.supervision.run import Refused
run_checks = checks.run_checks
checks.run_checks = lambda **given: [Error("no triggers", hint="Grant TRIGGER")]
try:
    preparation.run(True, print)
except Refused as error:
    print(error)
checks.run_checks = run_checks
preparation.run(True, print)
"""


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
            with path.open("wb") as log:
                program = [sys.executable, "manage.py", name]
                running.append(start_program(program, subprocess.DEVNULL, log, environment))
        deadline = time.monotonic() + 300
        while silent := [name for name, log in logs.items() if SENTENCE not in log.read_text()]:
            ended = [process for process in running if process.poll() is not None]
            assert not ended, [logs[name].read_text() for name in silent]
            assert time.monotonic() < deadline, [logs[name].read_text() for name in silent]
            time.sleep(0.1)
        assert all(process.poll() is None for process in running), "they wait"
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert unexpected_errors(tmp_path, {"open_alerts_not_read"}) == []


@pytest.mark.parametrize("command", ["management_key ci", "login_link ann", "export", "set_cell"])
def test_a_command_ends_with_one_sentence(command: str, tmp_path: Path) -> None:
    """Where the tables lack, and where no database answers."""

    def run(url: str, *options: str) -> tuple[int, str]:
        environment = {**os.environ, "DATABASE_URL": url, "STATE_DIR": str(tmp_path)}
        words = [sys.executable, "manage.py", *command.split(), *options]
        done = run_program(words, environment)
        return done.returncode, done.stderr

    nowhere = f"mysql://user:password@127.0.0.1:{free_port()}/name"
    for url, part in ((f"sqlite:///{tmp_path / 'empty.db'}", SENTENCE), (nowhere, "127.0.0.1")):
        code, text = run(url)
        assert (code, part in text, "Traceback" in text) == (1, True, False), text
    assert "Traceback" in run(nowhere, "--traceback")[1]


def test_a_first_start_tells_no_warnings_of_what_is_not_started_yet(tmp_path: Path) -> None:
    environment = {
        **os.environ, "DATABASE_URL": f"sqlite:///{tmp_path / 'empty.db'}", "DEBUG": "yes",
        "STATE_DIR": str(tmp_path), "SMS_REDIS_URL": f"unix://{tmp_path / 'none.sock'}",
        "DJANGO_SETTINGS_MODULE": "msgplatform.settings",
    }  # fmt: skip
    program = [sys.executable, "-c", FIRST_START]
    done = subprocess.run(
        program, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "WARNINGS" not in done.stderr + done.stdout
    first, *refused = done.stdout.splitlines()
    assert first.startswith("Making the tables (default)")
    assert "no triggers" in " ".join(refused)
    assert "Grant TRIGGER" in " ".join(refused)


def test_a_stop_of_a_first_start_is_told(tmp_path: Path) -> None:
    """The tables are made to their end, which takes long."""
    environment = {
        **os.environ, "DATABASE_URL": f"sqlite:///{tmp_path / 'empty.db'}",
        "STATE_DIR": str(tmp_path / "state"),
    }  # fmt: skip
    command = [sys.executable, "manage.py", "up", "--port", str(free_port())]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as up:  # fmt: skip
        assert up.stderr
        try:
            assert up.stderr.readline().startswith("Making the tables (default)")
            up.terminate()
            assert up.stderr.readline() == "It stops when the tables are ready.\n"
        finally:
            os.killpg(up.pid, signal.SIGKILL)
