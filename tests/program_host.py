"""Programs of the platform, each forked from a process that has done Django's setup already.

That takes nine tenths of a program's start, and a run of the tests starts hundreds. A program has
a process of its own from its first statement on: its memory, connections and end are nobody
else's. How programs start by themselves is shown by the tests of `up`, of the README and of the
web server, and under the full load by all.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from msgplatform.core.servers.private_server import ServerFailed

ROOT = Path(__file__).resolve().parents[1]
_HASTY = ["-m", "tests.programs.hasty_program"]
# A child leaves the loop, and goes on as the program would.
_HOST = """
import json, os, runpy, socket, sys
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "msgplatform.settings")
os.environ.setdefault("MSGPLATFORM_PROFILE", "daemon")  # as manage.py sets it
import django, manage
django.setup()
orders = socket.socket(fileno=int(sys.argv[1]))
while True:
    message, files, _, _ = socket.recv_fds(orders, 1 << 16, 2)
    if not message:
        sys.exit()
    order = json.loads(message)
    if isinstance(order, int):
        answer = os.waitpid(order, os.WNOHANG)
    elif pid := os.fork():
        answer = pid
    else:
        break
    orders.send(json.dumps(answer).encode())
    for file in files:
        os.close(file)
orders.close()
for file, place in zip((*files, files[1]), range(3)):
    os.dup2(file, place)
for file in files:
    os.close(file)
if order[0] == "-m":
    sys.argv = order[1:]
    runpy.run_module(order[1], run_name="__main__", alter_sys=True)
else:
    sys.argv = order
    manage.main()
"""


def can_fork(command: Sequence[str]) -> bool:
    """True for a daemon that `manage.py` starts, with the platform's waits or with shorter ones."""
    python, *words = command
    is_daemon = words[0] == "manage.py" and words[1].startswith("run_")
    return python == sys.executable and (is_daemon or words[:2] == _HASTY)


class ProgramHost:
    """Starts programs with one environment, their output in `log`. Once it has ended nobody can
    wait for them any more."""

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        self._orders, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other, log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _HOST, str(other.fileno())], cwd=ROOT, env=environment,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=[other.fileno()],
            )  # fmt: skip
        self._log, self._turn = log, threading.Lock()

    def start(self, command: Sequence[str], stdin: int, log: IO[bytes]) -> Program:
        """`stdin` is PIPE or DEVNULL, as for Popen."""
        if stdin == subprocess.PIPE:
            source, target = os.pipe()
            pipe: IO[bytes] | None = os.fdopen(target, "wb", buffering=0)
        else:
            source, pipe = os.open(os.devnull, os.O_RDONLY), None
        try:
            return Program(self, self.ask(list(command[1:]), source, log.fileno()), pipe)
        finally:
            os.close(source)

    def ask(self, order: Any, *files: int) -> Any:
        with self._turn:
            socket.send_fds(self._orders, [json.dumps(order).encode()], files)
            answer = self._orders.recv(1 << 16)
        if answer:
            return json.loads(answer)
        raise ServerFailed(f"The host of programs ended:\n{self._log.read_text()[-3000:]}")

    def close(self) -> None:
        self._orders.close()
        self._process.wait()


class Program:
    """A process of a host, with what tests use of `subprocess.Popen`."""

    def __init__(self, host: ProgramHost, pid: int, stdin: IO[bytes] | None) -> None:
        self._host, self.pid, self.stdin = host, pid, stdin
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = self._host.ask(self.pid)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises TimeoutExpired after this many seconds."""
        if (code := self.poll()) is not None:
            return code
        end = os.pidfd_open(self.pid)
        try:
            select.select([end], [], [], timeout)
        finally:
            os.close(end)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
