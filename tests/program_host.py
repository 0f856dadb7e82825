"""Programs that are forked from a process which has loaded what they all load.

For a program of the platform that is nine tenths of its start, and a run of the tests starts
hundreds. A program has a process of its own from its first statement on: its memory, connections
and end are nobody else's. How programs start by themselves is shown by the tests of `up`, of the
README and of the web server, and under the full load by all.
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

_HASTY = "tests.programs.hasty_program"
# A child leaves the loop, and goes on as the program would.
_HOST = """
import json, os, socket, sys
orders = socket.socket(fileno=int(sys.argv[1]))
exec(sys.argv[2])
while True:
    message, files, _, _ = socket.recv_fds(orders, 1 << 17, 3)
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
for place, file in enumerate(files):
    os.dup2(file, place)
    os.close(file)
code, sys.argv, environment, folder = order
os.environ.clear()
os.environ.update(environment)
os.chdir(folder)
exec(code)
"""
_SETUP = """
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "msgplatform.settings")
os.environ.setdefault("MSGPLATFORM_PROFILE", "daemon")  # as manage.py sets it
import django
django.setup()
"""


# Where a program dies is read when it is loaded.
_FAILPOINT = """
import importlib
from msgplatform.core import failpoints
importlib.reload(failpoints)
"""


def code_of(command: Sequence[str]) -> str:
    """How a child of a host for daemons runs this command line; '' if it cannot."""
    python, first, second, *_ = command
    if python != sys.executable:
        return ""
    if first == "manage.py" and second.startswith("run_"):
        return f"{_FAILPOINT}import manage; manage.main()"
    if (first, second) == ("-m", _HASTY):
        return f"{_FAILPOINT}import sys; del sys.argv[0]; from {_HASTY} import main; main()"
    return ""


class ProgramHost:
    """Starts programs. `setup` is what it loads for them, with the variables of `environment`; its
    output goes to `log`. Once it has ended nobody can wait for its programs any more."""

    def __init__(
        self, environment: Mapping[str, str], folder: Path, log: Path,
        setup: str = _SETUP, python: str | Path = sys.executable,
    ) -> None:  # fmt: skip
        self._environment, self._folder, self._log = dict(environment), folder, log
        self._orders, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._turn = threading.Lock()
        with other, log.open("ab") as output:
            self._process = subprocess.Popen(
                [python, "-c", _HOST, str(other.fileno()), setup], cwd=folder, env=environment,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=[other.fileno()],
            )  # fmt: skip

    def start(
        self, code: str, arguments: Sequence[str], stdin: int, out: IO[bytes], error: IO[bytes],
        environment: Mapping[str, str] | None = None, folder: Path | None = None,
    ) -> Program:  # fmt: skip
        """Run code in a process of its own, in this environment and folder instead of the host's.
        What was loaded before does not see `environment`. `arguments` are those of its command
        line, its name first; `stdin` is PIPE, DEVNULL or a file."""
        opened: int | None = None
        pipe: IO[bytes] | None = None
        if stdin == subprocess.PIPE:
            opened, target = os.pipe()
            pipe = os.fdopen(target, "wb", buffering=0)
        elif stdin == subprocess.DEVNULL:
            opened = os.open(os.devnull, os.O_RDONLY)
        source = stdin if opened is None else opened
        variables = self._environment if environment is None else dict(environment)
        order = [code, list(arguments), variables, str(folder or self._folder)]
        try:
            return Program(self, self.ask(order, source, out.fileno(), error.fileno()), pipe)
        finally:
            if opened is not None:
                os.close(opened)

    def ask(self, order: Any, *files: int) -> Any:
        with self._turn:
            socket.send_fds(self._orders, [json.dumps(order).encode()], files)
            answer = self._orders.recv(1 << 10)
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
