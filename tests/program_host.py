"""Programs that are forked from a process which has loaded what they all load.

For a program of the platform that is nine tenths of its start, and a run of the tests starts
hundreds. A program has a process of its own from its first statement on: its memory, connections
and end are nobody else's, and its settings come from its own environment. How programs start by
themselves is shown by the tests of `up` and of the README, and under the full load by all.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import psutil

from msgplatform.core.servers.private_server import ServerFailed, tail

ROOT = Path(__file__).resolve().parents[1]
IS_FULL = bool(os.environ.get("MSGPLATFORM_FULL_LOAD"))
_HASTY = "tests.programs.hasty_program"
_WEB = "msgplatform.doors.web"
# A child leaves the loop, and goes on as the program would. What was loaded before stays as it is:
# collections that go through it would copy its memory for each child.
_HOST = """
import faulthandler, gc, json, os, socket, sys
faulthandler.enable()  # a program that ends by a fault says where, in its own log
orders = socket.socket(fileno=int(sys.argv[1]))
exec(sys.argv[2])
gc.collect()
gc.freeze()
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
_SETUP = "import django; django.setup()"
# A web server and most commands load the pages, too; a daemon has none.
_HOST_SETUP = f"""{_SETUP}
from django.conf import settings
if not settings.DAEMON:
    import msgplatform.urls
"""
_ANSWER_SECONDS = 300.0  # Django's setup takes long on a busy machine
# Where a program dies is read when it is loaded, as are the settings.
_OWN_ENVIRONMENT = """
import importlib
from django.conf import settings
from django.db import connections
from msgplatform.core import failpoints
importlib.reload(failpoints)
for package in ["msgplatform", *settings.FLOWS, *settings.FEATURES]:
    sys.modules.pop(f"{package}.settings", None)
sys.modules.pop(settings.SETTINGS_MODULE, None)
for name, value in vars(importlib.import_module(settings.SETTINGS_MODULE)).items():
    if name.isupper():
        setattr(settings, name, value)
for connection in connections.all(initialized_only=True):  # not open, and for the host's database
    del connections[connection.alias]
connections.settings = connections.configure_settings(None)
"""
# Variables in which programs of one host may differ: nothing that is loaded with Django's setup
# looks at the settings that come from them.
_OWN_VARIABLES = {
    "ACCESS_LOG", "AGENT_DATABASE_URL", "COLD_DATABASE_URL", "ENCRYPTION_KEY", "LOG_LEVEL",
    "METRICS_TOKEN", "MSGPLATFORM_FAILPOINT", "OUTBOUND_ALLOW", "PUBLIC_URL",
    "PYTEST_CURRENT_TEST", "REDIS_URL", "STATE_DIR",
}  # fmt: skip
_OWN_PREFIXES = ("ALERT_", "CRM_", "FEED_", "NOTIFY_", "SMS_")  # of flows and of alerts
# For the loader of libraries, or for Python itself: there is nothing to be changed after the start.
_START_VARIABLES = {"LD_PRELOAD", "PYTHONPATH"}


def _code_of(command: Sequence[str]) -> str:
    """How a child of a host runs this command line; '' if it cannot."""
    python, first, second, *_ = command
    if python != sys.executable:
        return ""
    if first == "manage.py" and second != "up":  # which is the parent of others
        return "import manage; manage.main()"
    if (first, second) == ("-m", _HASTY):
        return f"del sys.argv[0]; from {_HASTY} import main; main()"
    if (first, second) == ("-m", _WEB):
        return f"del sys.argv[0]; from {_WEB}.__main__ import main; main()"
    return second if first == "-c" else ""


def start_program(
    command: Sequence[str], stdin: int, log: IO[bytes], environment: Mapping[str, str],
    error: IO[bytes] | None = None,
) -> subprocess.Popen[bytes] | Program:  # fmt: skip
    """Start a command line of the platform in the folder of the clone. `stdin` is PIPE, DEVNULL or
    a file; `log` takes both outputs, unless `error` takes one."""
    error = error or log
    if _can_fork(environment) and (code := _code_of(command)):
        is_daemon = command[2].startswith("run_") or _HASTY in command
        profile = {"MSGPLATFORM_PROFILE": "daemon"} if is_daemon else {}  # as manage.py sets it
        return _start(code, command[1:], stdin, log, error, {**environment, **profile})
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=stdin, stdout=log, stderr=error, bufsize=0
    )


def run_program(
    command: Sequence[str], environment: Mapping[str, str], seconds: float = 300.0
) -> subprocess.CompletedProcess[str]:
    """Run a command line of the platform to its end. Raises TimeoutExpired after this time."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as error:
        process = start_program(command, subprocess.DEVNULL, out, environment, error)
        try:
            code = process.wait(seconds)
        finally:
            process.kill()
            process.wait()
        texts = []
        for file in (out, error):
            file.seek(0)
            texts.append(file.read().decode())
    return subprocess.CompletedProcess(list(command), code, *texts)


def start_code(
    code: str, arguments: Sequence[str], environment: Mapping[str, str],
    log: IO[bytes] | None = None,
) -> subprocess.Popen[bytes] | Program:  # fmt: skip
    """Run code in a process of the platform, after Django's setup, with pipes for its input and its
    output. Errors go to `log`, or where this process's own go."""
    if _can_fork(environment):
        with os.fdopen(os.dup(log.fileno() if log else 2), "wb") as error:
            return _start(code, ["-c", *arguments], subprocess.PIPE, None, error, environment)
    return subprocess.Popen(
        [sys.executable, "-c", f"{_SETUP}\n{code}", *arguments], cwd=ROOT, env=environment,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, bufsize=0,
    )  # fmt: skip


def _can_fork(environment: Mapping[str, str]) -> bool:
    return not IS_FULL and all(
        environment.get(name) == os.environ.get(name) for name in _START_VARIABLES
    )


def _start(
    code: str, arguments: Sequence[str], stdin: int, out: IO[bytes] | None, error: IO[bytes],
    environment: Mapping[str, str],
) -> Program:  # fmt: skip
    variables = {"DJANGO_SETTINGS_MODULE": "msgplatform.settings", **environment}
    host = _host_for(variables)
    return host.start(_OWN_ENVIRONMENT + code, arguments, stdin, out, error, variables)


_hosts: dict[str, ProgramHost] = {}  # by what programs of one host have in common


def _host_for(variables: Mapping[str, str]) -> ProgramHost:
    common = {
        name: value
        for name, value in variables.items()
        if name not in _OWN_VARIABLES and not name.startswith(_OWN_PREFIXES)
    }
    # Databases of one kind have the same settings, the address aside.
    common["DATABASE_URL"] = common.get("DATABASE_URL", "").partition(":")[0]
    key = json.dumps(common, sort_keys=True)
    if key not in _hosts or _hosts[key].has_ended:
        log = Path(tempfile.mkdtemp(prefix="mp-host-")) / "log"
        host = _hosts[key] = ProgramHost(variables, ROOT, log, _HOST_SETUP)
        atexit.register(host.close)
        atexit.register(shutil.rmtree, log.parent, ignore_errors=True)
    return _hosts[key]


def core_seconds() -> float:
    """Of the hosts that this process has started, and of those of their programs that have ended.
    Until a host ends, the kernel counts them nowhere else."""
    return sum(host.core_seconds() for host in _hosts.values())


class ProgramHost:
    """Starts programs. `setup` is what it loads for them, with the variables of `environment`; its
    output goes to `log`. Once it has ended nobody can wait for its programs any more. It is ended
    when an answer takes longer than `seconds`. Methods raise ServerFailed with the log's end."""

    def __init__(
        self, environment: Mapping[str, str], folder: Path, log: Path,
        setup: str, python: str | Path = sys.executable, seconds: float = _ANSWER_SECONDS,
    ) -> None:  # fmt: skip
        self._environment, self._folder, self._log = dict(environment), folder, log
        self._orders, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._orders.settimeout(seconds)
        self._turn = threading.Lock()
        with other, log.open("ab") as output:
            self._process = subprocess.Popen(
                [python, "-c", _HOST, str(other.fileno()), setup], cwd=folder, env=environment,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=[other.fileno()],
            )  # fmt: skip

    def start(
        self, code: str, arguments: Sequence[str], stdin: int, out: IO[bytes] | None,
        error: IO[bytes], environment: Mapping[str, str] | None = None, folder: Path | None = None,
    ) -> Program:  # fmt: skip
        """Run code in a process of its own, in this environment and folder instead of the host's.
        What was loaded before does not see `environment`. `arguments` are those of its command
        line, its name first; `stdin` is PIPE, DEVNULL or a file; `out` is None for a pipe."""
        opened: list[int] = []  # here, for the program
        pipe = output = None
        if stdin == subprocess.PIPE:
            stdin, target = os.pipe()
            opened.append(stdin)
            pipe = os.fdopen(target, "wb", buffering=0)
        elif stdin == subprocess.DEVNULL:
            stdin = os.open(os.devnull, os.O_RDONLY)
            opened.append(stdin)
        if out is None:
            source, target = os.pipe()
            opened.append(target)
            output = os.fdopen(source, "rb")
        else:
            target = out.fileno()
        variables = self._environment if environment is None else dict(environment)
        order = [code, list(arguments), variables, str(folder or self._folder)]
        try:
            pid = self.ask(order, stdin, target, error.fileno())
            return Program(self, pid, pipe, output)
        finally:
            for file in opened:
                os.close(file)

    def ask(self, order: Any, *files: int) -> Any:
        with self._turn:
            try:
                socket.send_fds(self._orders, [json.dumps(order).encode()], files)
                answer = self._orders.recv(1 << 10)
            except ConnectionError:  # it was killed
                answer = b""
            except TimeoutError:
                answer = b""
                self._process.send_signal(signal.SIGABRT)  # it writes where it stands into its log
                self._process.wait(60)
        if answer:
            return json.loads(answer)
        code = self._process.wait(60)
        raise ServerFailed(f"The host of programs ended with {code}:\n{tail(self._log, 40)}")

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def core_seconds(self) -> float:
        """0 after its end: the kernel counts it for this process then."""
        with suppress(psutil.NoSuchProcess):
            return sum(psutil.Process(self._process.pid).cpu_times()[:4])
        return 0.0

    def close(self) -> None:
        self._orders.close()
        self._process.wait()


class Program:
    """A process of a host, with what tests use of `subprocess.Popen`."""

    def __init__(
        self, host: ProgramHost, pid: int, stdin: IO[bytes] | None, stdout: IO[bytes] | None
    ) -> None:
        self._host, self.pid, self.stdin, self.stdout = host, pid, stdin, stdout
        self.returncode: int | None = None
        self._turn = threading.Lock()  # an end is reported once

    def poll(self) -> int | None:
        with self._turn:
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
