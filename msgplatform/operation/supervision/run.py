"""Runs supervisord as a child, in the foreground, once for a state directory."""

from __future__ import annotations

import fcntl
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, Self
from xmlrpc.client import Error as RpcError, ServerProxy

import msgspec
from supervisor.xmlrpc import SupervisorTransport

from msgplatform.core.errors import PlatformError
from msgplatform.core.servers import child_process
from msgplatform.core.servers.private_server import private_directory, tail
from msgplatform.operation.supervision.config import Places, Program, render

_START_SECONDS = 120.0
_POLL_SECONDS = 0.05
_INHERITANCE = "MSGPLATFORM_INHERITANCE"
# Added to the programs' own times, because supervisord looks at its children once a second.
_STOP_MARGIN_SECONDS = 10.0


class Refused(PlatformError):
    """The platform cannot start; the message says why, and what to do."""


class Lock:
    """The lock of a state directory, for one `up`. An open file holds it until the process ends."""

    def __init__(self, run: Path) -> None:
        self.path = run / "up.lock"
        self.file = -1

    def take(self) -> None:
        """Raises Refused with the holder's pid."""
        file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(file, 20).decode(errors="replace").strip() or "unknown"
            os.close(file)
            raise Refused(
                f"The platform in {self.path.parent.parent} is in use by process {holder}. If it "
                f"is an `up`, stop it with: kill {holder}. A backup or a restore ends by itself."
            ) from None
        os.truncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        self.file = file

    def adopt(self, file: int) -> None:
        """Go on with a lock that the `up` of another release has taken."""
        os.set_inheritable(file, False)
        self.file = file

    def release(self) -> None:
        if self.file >= 0:
            os.close(self.file)
            self.file = -1


@contextmanager
def lock_updates(run: Path) -> Iterator[None]:
    """Raises Refused while another update of this machine runs: the two would stop each other's new
    programs, and both would go back."""
    with (run / "update.lock").open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            text = f"An update runs already (process {file.read()}): wait until it has ended."
            raise Refused(text) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def is_running(state_dir: Path) -> bool:
    """True if an `up` holds this state directory now."""
    lock = Lock(state_dir / "run")
    try:
        lock.take()
    except FileNotFoundError:
        return False
    except Refused:
        return True
    lock.release()
    return False


class Inheritance(msgspec.Struct, frozen=True):
    """All that `up` of the next release takes over from the process that it replaces: open files
    of the lock and of the address, and the child supervisord."""

    lock: int
    reservation: int
    supervisord: int

    @classmethod
    def take(cls) -> Inheritance | None:
        """None for a start by a person."""
        words = os.environ.pop(_INHERITANCE, "").split()
        return cls(*map(int, words)) if words else None

    def hand_over(self, command: list[str], folder: str) -> NoReturn:
        """Become this command; call it in the main thread, because supervisord watches that."""
        for file in (self.lock, self.reservation):
            os.set_inheritable(file, True)
        os.environ[_INHERITANCE] = f"{self.lock} {self.reservation} {self.supervisord}"
        os.chdir(folder)
        # A repeated update may send it before the next `up` listens.
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        os.execv(command[0], command)  # noqa: S606 - our own command line


class InheritedProcess:
    """A child that this process did not start itself; as much of Popen as Supervisor needs."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            end = os.pidfd_open(self.pid)
            try:
                select.select([end], [], [], timeout)
            finally:
                os.close(end)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return code

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


@contextmanager
def supervisord_at(socket: Path) -> Iterator[Any]:
    """supervisord's XML-RPC. Calls raise OSError, RpcError."""
    transport = SupervisorTransport(None, None, f"unix://{socket}")
    try:
        yield ServerProxy("http://127.0.0.1", transport=transport)
    finally:
        transport.close()


class Supervisor:
    """supervisord with these programs.

    Start it from a thread that stays: see `core.servers.child_process`.
    """

    def __init__(
        self,
        state_dir: Path,
        socket: Path,
        programs: Sequence[Program],
        env: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> None:
        self.places = Places(state_dir, socket)
        self._programs = list(programs)
        self._extra_programs: list[Program] = []
        self.env = {**os.environ, **(env or {})}
        self.directory = directory
        self.is_stop_requested = False
        self._process: subprocess.Popen[bytes] | InheritedProcess | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    def adopt(self, pid: int) -> None:
        """Go on with a supervisord that the `up` of another release has started."""
        self._process = InheritedProcess(pid)

    @property
    def programs(self) -> list[Program]:
        return [*self._programs, *self._extra_programs]

    def follow(self, extra_programs: Sequence[Program]) -> None:
        """Run these programs beside the first ones, and stop programs of the last call that are not
        among them. Raises OSError, RpcError; then call it again."""
        if list(extra_programs) == self._extra_programs:
            return
        config = render([*self._programs, *extra_programs], self.places)
        self.places.config.write_text(config, encoding="utf-8")
        with supervisord_at(self.places.socket) as rpc:
            ((new_groups, _changed_groups, old_groups),) = rpc.supervisor.reloadConfig()
            # Start new groups first, because an old group may take a minute to drain.
            for group in new_groups:
                rpc.supervisor.addProcessGroup(group)
            for group in old_groups:
                rpc.supervisor.stopProcessGroup(group)
                rpc.supervisor.removeProcessGroup(group)
        self._extra_programs = list(extra_programs)

    def start(self) -> Self:
        """Start supervisord and wait until it answers. Raises Refused, with the end of the logs, if
        it does not answer in time."""
        config = render(self.programs, self.places)
        for folder in (self.places.run, self.places.logs, self.places.socket.parent):
            private_directory(folder)
        shutil.rmtree(self.places.pace, ignore_errors=True)
        private_directory(self.places.pace)
        self.places.config.write_text(config, encoding="utf-8")
        self.places.socket.unlink(missing_ok=True)
        module = "msgplatform.operation.supervision.supervisord"
        supervisord = ["-m", module, "--nodaemon", "-c", str(self.places.config)]
        with self.places.output.open("wb") as output:
            process = self._process = subprocess.Popen(  # noqa: S603 - our own command line
                child_process.command([sys.executable, *supervisord], "--parent", str(os.getpid())),
                env=self.env,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,  # Ctrl-C reaches only `up`, which stops all in order
            )
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if process.poll() is not None and self.is_stop_requested:
                return self
            if process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                ends_of_logs = tail(self.places.output), tail(self.places.log)
                raise Refused("supervisord did not start:\n" + "\n".join(ends_of_logs))
            time.sleep(_POLL_SECONDS)
        if self.is_stop_requested and process.poll() is None:
            process.terminate()  # the stop was requested before the process existed
        return self

    def _answers(self) -> bool:
        try:
            with supervisord_at(self.places.socket) as rpc:
                return bool(rpc.supervisor.getState()["statename"] == "RUNNING")
        except (OSError, RpcError):
            return False

    def processes(self) -> list[dict[str, Any]]:
        """supervisord's information on each process (getAllProcessInfo). Raises OSError."""
        with supervisord_at(self.places.socket) as rpc:
            return list(rpc.supervisor.getAllProcessInfo())

    def request_stop(self) -> None:
        """Begin to stop everything in order; a second call kills. Signal handlers may call this."""
        is_second, self.is_stop_requested = self.is_stop_requested, True
        if self._process is not None and self._process.returncode is None:
            # Popen's methods take a lock, which the interrupted `wait()` may hold.
            os.kill(self._process.pid, signal.SIGKILL if is_second else signal.SIGTERM)

    def wait(self, seconds: float | None = None) -> int | None:
        """supervisord's exit code; None if supervisord still runs after `seconds`."""
        if self._process is None:
            return 0
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def stop(self) -> None:
        """Stop everything, the last started first; kill everything after the programs' time."""
        if not self.is_stop_requested:
            self.request_stop()
        # Groups stop one after another. A group takes as long as its slowest program.
        slowest_last = sorted(self.programs, key=lambda program: program.stop_seconds)
        groups = {program.group: program.stop_seconds for program in slowest_last}
        if self.wait(sum(groups.values()) + _STOP_MARGIN_SECONDS) is None:
            self.kill()

    def kill(self) -> None:
        """Kill supervisord at once. The kernel kills the programs with supervisord."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
