"""The platform as real processes, on servers that belong to one test.

A process that is killed here stays dead until the test starts it again: the supervisor has its own
test. The database is a new one, on SQLite or on MariaDB.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.harness import migrated
from msgplatform.core.servers.logged_errors import unexpected_errors
from msgplatform.core.servers.private_server import RedisServer, free_port, tail
from tests.program_host import Program, start_code, start_program
from tests.redis_client import connect
from tests.waiting import freeze, pause

ROOT = Path(__file__).resolve().parents[1]
# Short, so that what a killed process held comes back within a test.
LEASE_SECONDS = 10
# Longer than a busy machine lets a process stand still: what it has in hand would be sent twice.
PATIENT_LEASE_SECONDS = 30
DAEMONS = ("run_maker", "run_sender", "run_marker")
WEB = "web"
MIGRATE = """
from django.core.management import call_command
call_command("migrate", verbosity=0)
"""
# Django's start takes longer than most pieces of code, so one process runs them all.
CONSOLE = """
import contextlib, io, json, sys, traceback
from django.db import connections
answers, sys.stdout = sys.stdout, sys.stderr
for line in sys.stdin:
    said, error = io.StringIO(), ""
    try:
        with contextlib.redirect_stdout(said):
            exec(json.loads(line), {"__name__": "__main__"})
    except Exception:
        error = traceback.format_exc()
    connections.close_all()  # servers may be killed before the next one
    print(json.dumps([said.getvalue(), error]), file=answers, flush=True)
"""


def times_of_notify(lease: int) -> dict[str, str]:
    """Settings with this lease in seconds, and the longest time of a request that it allows: a
    request that is given up while a busy machine stands still is sent again."""
    return {
        "NOTIFY_LEASE_SECONDS": str(lease),
        "NOTIFY_TIMEOUT_SECONDS": f"{lease / 2 - 1:g}",
    }


class Console:
    """A process of the platform that runs pieces of code, one after another."""

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        self._environment, self._log = environment, log
        self._process: subprocess.Popen[bytes] | Program | None = None
        self._turn = threading.Lock()

    def start(self) -> None:
        """Let it come up, which takes a while."""
        self._process = self._process or self._start()

    def run(self, code: str) -> str:
        """What it printed. Fails with the traceback when it raised."""
        with self._turn:
            process = self._process = self._process or self._start()
            assert process.stdin
            assert process.stdout
            process.stdin.write(f"{json.dumps(code)}\n".encode())
            line = process.stdout.readline()
        assert line, f"the console ended\n{self._log.read_text(errors='replace')[-3000:]}"
        said, error = json.loads(line)
        assert not error, error[-3000:]
        return str(said)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe
                pipe.close()

    def _start(self) -> subprocess.Popen[bytes] | Program:
        with self._log.open("ab") as log:
            return start_code(CONSOLE, [], self._environment, log)


class Cluster:
    """Start, kill and look at the processes of one platform."""

    poll_seconds = 0.05  # between the first looks at a condition

    def __init__(
        self, folder: Path, database_url: str, programs: tuple[str, ...] = (WEB, *DAEMONS)
    ) -> None:
        self.folder = folder
        self.programs = programs
        self.port = free_port()
        self.base_url = f"http://127.0.0.1:{self.port}"
        self.redis_server = RedisServer(folder / "redis", folder / "work.sock")
        self.processes: dict[str, subprocess.Popen[bytes] | Program] = {}
        self.kills: list[str] = []
        self.frozen: set[str] = set()  # paused until somebody resumes them
        self._mortal_pids: set[int] = set()  # of programs that were killed, or die at a failpoint
        # Events that programs may log at level error; None: nobody judges their logs.
        self.expected_errors: set[str] | None = None
        self.environment = {
            **os.environ,
            "DATABASE_URL": database_url,
            "REDIS_URL": self.redis_server.url,
            "STATE_DIR": str(folder / "state"),
            "PUBLIC_URL": self.base_url,
            "OUTBOUND_ALLOW": "127.0.0.0/8",
            **times_of_notify(LEASE_SECONDS),
            "LOG_LEVEL": "INFO",
        }
        self.console = Console(self.environment, folder / "console.log")

    def __enter__(self) -> Cluster:
        (self.folder / "state").mkdir()
        self.redis_server.start()
        self.redis = connect(self.redis_server.url)
        self.console.start()
        self.fill_database()
        for name in self.programs:
            self.start(name)
        self.wait_until(self._ready, "the web server to be ready")
        return self

    def fill_database(self) -> None:
        kind = "without the archive" if "COLD_DATABASE_URL" in self.environment else "everything"
        migrated.fill(self.environment["DATABASE_URL"], lambda: self.console.run(MIGRATE), kind)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()
        self.console.close()
        self.redis_server.kill()
        is_judged = kind is None and self.expected_errors is not None
        if is_judged and (lines := self.unexpected_errors()):
            raise AssertionError("programs logged errors:\n" + "\n".join(lines))

    # -- processes -------------------------------------------------------------------------------
    def start(self, name: str, failpoint: str = "") -> None:
        """Start a daemon or the web server; optionally with a place at which it dies."""
        environment, command = self._environment(name), self._command(name)
        if failpoint:
            environment["MSGPLATFORM_FAILPOINT"] = failpoint
        with (self.folder / f"{name}.log").open("ab") as log:
            process = start_program(command, self._stdin(name), log, environment)
        (self._mortal_pids.add if failpoint else self._mortal_pids.discard)(process.pid)
        self.processes[name] = process

    def _environment(self, name: str) -> dict[str, str]:
        return dict(self.environment)

    def _stdin(self, name: str) -> int:
        return subprocess.DEVNULL

    def _command(self, name: str) -> list[str]:
        if name == WEB:
            return [sys.executable, "-m", "msgplatform.doors.web", "--port", str(self.port)]
        return [sys.executable, "manage.py", name]

    def kill(self, name: str) -> None:
        """SIGKILL, and the children too: granian's worker would go on otherwise."""
        process = self.processes[name]
        self._mortal_pids.add(process.pid)
        self._signal(name, signal.SIGKILL)
        process.wait()
        self.kills.append(name)

    def pause(self, name: str) -> None:
        """SIGSTOP: it is there and does nothing until `resume`, or until `standing_still` ends."""
        freeze(*self._pids(name))

    def resume(self, name: str) -> None:
        self._signal(name, signal.SIGCONT)

    def pause_until(self, name: str, condition: Callable[[], object], what: str) -> None:
        """Returns with a process stopped, and the condition true since then. A process that is
        stopped inside a transaction holds up all others on SQLite: it is let go now and then."""
        deadline = time.monotonic() + 600
        while True:
            self.pause(name)
            try:
                return self.wait_until(condition, what, 60)
            except AssertionError:
                if time.monotonic() > deadline:
                    raise
            self.resume(name)
            with contextlib.suppress(AssertionError):
                self.wait_until(condition, what, 1)

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
        """Every process of the platform is stopped meanwhile, for a look at one moment. What is
        frozen stays so afterwards."""
        living = [n for n in self.processes if n not in self.frozen and not self.died(n)]
        freeze(*(pid for name in living for pid in self._pids(name)))
        yield
        for name in living:
            self._signal(name, signal.SIGCONT)

    def _signal(self, name: str, number: int) -> None:
        for pid in self._pids(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _pids(self, name: str) -> list[int]:
        pid = self.processes[name].pid
        return [pid, *_children(pid)]

    def stop(self, name: str) -> None:
        """SIGTERM, as an operator stops it: what it owned is free at once."""
        self._mortal_pids.add(self.processes[name].pid)
        self.processes[name].terminate()
        self.processes[name].wait(timeout=180)

    def restart(self, name: str) -> None:
        self.kill(name)
        self.start(name)

    def died(self, name: str) -> bool:
        return self.processes[name].poll() is not None

    # -- looking ---------------------------------------------------------------------------------
    def script(self, code: str) -> Any:
        """Run code in a process of this platform; what it printed, as JSON."""
        return json.loads(self.console.run(code).splitlines()[-1])

    def get(self, path: str, token: str) -> Any:
        request = urllib.request.Request(
            self.base_url + path, headers={"Authorization": f"Bearer {token}"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def put(self, path: str, body: Any, token: str) -> Any:
        request = urllib.request.Request(
            self.base_url + path, json.dumps(body).encode(), method="PUT",
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def wait_until(self, condition: Callable[[], object], what: str, seconds: float = 600) -> None:
        """Poll a condition of the outside world; fail with the logs' tails."""
        begun = time.monotonic()
        while not condition():
            self.check_programs()
            if time.monotonic() > begun + seconds:
                raise AssertionError(f"waited {seconds} s for {what}\n{self._logs()}")
            pause(begun, self.poll_seconds)

    def check_programs(self) -> None:
        """Fail with the log of a program that has ended by itself: nobody starts it again, and
        there is nothing to wait for."""
        for name, process in list(self.processes.items()):
            if process.pid not in self._mortal_pids and self.died(name):
                log = tail(self.folder / f"{name}.log", 40)
                raise AssertionError(f"{name} ended by itself with {process.returncode}\n{log}")

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(self.base_url + "/readyz", timeout=10) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def said(self, name: str) -> str:
        """What a process wrote to its log, in all its lives."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def unexpected_errors(self) -> list[str]:
        """What programs have logged at level error and nobody expected."""
        expected = self.expected_errors or set()
        return [
            line
            for name in self.processes
            for line in unexpected_errors(self.folder / f"{name}.log", expected)
        ]

    def _logs(self) -> str:
        return "\n".join(
            f"--- {log.name}\n{log.read_text(errors='replace')[-1500:]}"
            for log in sorted(self.folder.glob("*.log"))
            if log.stem in self.processes
        )


def _children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()] if path.exists() else []
