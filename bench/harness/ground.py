"""Servers of one bench, the environment of its processes, and a folder that is removed at the end.

Nothing that the user has configured is used or changed: the environment is built from nothing.
"""

import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from bench.harness import migrated
from bench.harness.mariadb import MariaDb
from bench.harness.mysql import SERVERS
from bench.harness.processes import BenchFailed, Program
from msgplatform.core.secrets import encryption
from msgplatform.core.servers.private_server import RedisServer, free_port

ROOT = Path(__file__).resolve().parents[2]
DATABASES = (*SERVERS, "sqlite")
_OWN = "bench"  # the database that `migrate` fills
_POOL_SECONDS = 120.0
# Of the user's environment only what programs need to start, and with which traces (OTEL_…).
_KEPT = (
    *("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH"),
    migrated.FOLDER,
)
# Every commit is on disk before it is answered. The data of most benches fits into the buffer pool;
# a bench with more resizes it.
MARIADB_OPTIONS: Mapping[str, str | int] = {
    "innodb_flush_log_at_trx_commit": 1,
    "innodb_buffer_pool_size": "1G",
    "innodb_log_file_size": "512M",
    "innodb_sort_buffer_size": "64M",  # for the indexes of tables that are filled at once
}


class Ground:
    """A database and two Redis for this bench alone, and four free ports: `web_port`, `sink_port`,
    `smg_port` and `sms_port` (where an SMG and our receiver listen).

    For benches at scale: `rows` of the two databases, and the file for query `plans`.
    """

    def __init__(
        self,
        database: str,
        rows: tuple[int, int] = (1_000_000, 10_000_000),
        plans: Path = ROOT / "var" / "bench" / "query-plans.md",
    ) -> None:
        # A short name, because the path of a socket may have only 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="mp-bench-"))
        self.database, self.rows, self.plans = database, rows, plans
        self.web_port, self.sink_port = free_port(), free_port()
        self.smg_port, self.sms_port = free_port(), free_port()
        self.redis = RedisServer(self.folder / "redis", self.folder / "work.sock")
        self.sms_redis = RedisServer(
            self.folder / "redis-sms", self.folder / "sms.sock", appendonly=True
        )
        kind = SERVERS.get(database)
        self.mariadb = kind(self.folder / "db", MARIADB_OPTIONS) if kind else None
        self.environment: dict[str, str] = {}

    def __enter__(self) -> Self:
        try:
            self.redis.start()
            self.sms_redis.start()
            if self.mariadb:
                self.mariadb.start()
            self.environment = self._environment()
        except BaseException:
            # `with` calls __exit__ only after __enter__ has succeeded.
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.redis.kill()
        self.sms_redis.kill()
        if self.mariadb:
            self.mariadb.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def sink_url(self) -> str:
        return f"http://127.0.0.1:{self.sink_port}/hook"

    def servers(self) -> dict[str, int]:
        """The pid of each running server, by its name."""
        running: dict[str, RedisServer | MariaDb] = {"redis": self.redis}
        running["redis-sms"] = self.sms_redis
        if self.mariadb:
            running[self.database] = self.mariadb
        return {name: server.pid for name, server in running.items() if server.pid}

    def file(self, name: str) -> Path:
        """A path in the bench's folder; a file that was there is deleted."""
        path = self.folder / name
        path.unlink(missing_ok=True)
        return path

    # -- databases -------------------------------------------------------------------------------
    def make(self, name: str) -> MariaDb:
        """Make a further database, as `migrate` has left the first one, and use it. Returns the
        server; raises BenchFailed without MariaDB."""
        self.server.copy(_OWN, name)
        self.use(name)
        return self.server

    def use(self, name: str) -> None:
        """Let this process, and those that start from now on, use this database of MariaDB, which
        `make` has made."""
        from django.db import connection

        connection.close()
        connection.settings_dict["NAME"] = name
        self.environment["DATABASE_URL"] = self.server.url(name)

    def set_pool(self, size: int) -> None:
        """Resize MariaDB's buffer pool (in bytes), and wait until that is done."""
        self.server.execute(f"SET GLOBAL innodb_buffer_pool_size = {size}")
        deadline = time.monotonic() + _POOL_SECONDS
        while True:
            has = int(self.server.execute("SELECT @@innodb_buffer_pool_size")[0][0])
            # The server rounds, and resizes in the background.
            if size * 0.9 < has < size * 1.1:
                return
            if time.monotonic() > deadline:
                raise BenchFailed("the buffer pool does not change its size")
            time.sleep(0.1)

    @property
    def server(self) -> MariaDb:
        """The MariaDB, for benches that need it. Raises BenchFailed without one."""
        if self.mariadb is None:
            raise BenchFailed("This bench needs MariaDB.")
        return self.mariadb

    # -- programs --------------------------------------------------------------------------------
    def daemon(self, command: str, **settings: str) -> Program:
        """One of the platform's daemons, started as `up` starts it; `settings` are for it alone."""
        argv = [sys.executable, str(ROOT / "manage.py"), command, "--drain-seconds", "20"]
        return Program(command, argv, {**self.environment, **settings})

    def web(self) -> Program:
        """The web server, with the command line that `up` uses."""
        from msgplatform.operation.supervision.platform import web

        argv = web("127.0.0.1", self.web_port, workers=1).argv
        return Program("web", list(argv), self.environment)

    def module(
        self,
        label: str,
        module: str,
        *arguments: object,
        load: bool = False,
        ready: Callable[[], bool] = lambda: True,
    ) -> Program:
        """`python -m module arguments`; `load`: it is not part of the measured side."""
        argv = [sys.executable, "-m", module, *map(str, arguments)]
        return Program(label, argv, self.environment, load, ready)

    def _environment(self) -> dict[str, str]:
        state = self.folder / "state"
        state.mkdir(mode=0o700)
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in _KEPT or name.startswith("OTEL_")
        }
        url = f"sqlite:///{state / 'bench.db'}"
        return {
            **kept,
            "DJANGO_SETTINGS_MODULE": "msgplatform.settings",
            "DATABASE_URL": self.mariadb.create(_OWN) if self.mariadb else url,
            "REDIS_URL": self.redis.url,
            "SMS_REDIS_URL": self.sms_redis.url,
            "SMS_RECEIVER_PORT": str(self.sms_port),
            "STATE_DIR": str(state),
            "SECRET_KEY": secrets.token_urlsafe(50),
            "ENCRYPTION_KEY": encryption.new_key(),
            "PUBLIC_URL": f"http://127.0.0.1:{self.web_port}",
            "OUTBOUND_ALLOW": "127.0.0.0/8",
        }
