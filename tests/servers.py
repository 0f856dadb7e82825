"""A pytest plugin that gives every run servers of its own: two Redis, and a database.

With `pytest -n` each process is such a run.

It is loaded by `-p tests.servers` and acts before Django's settings are imported. The database is
a SQLite file, or a server with TEST_DATABASE=mariadb or mysql. The test database has the name that
DATABASE_URL names, so that processes which a test starts see what the test sees.

Everything lives in one folder below /tmp and goes away with the run, however that ends.
"""

import atexit
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.harness import migrated
from bench.harness.mariadb import MariaDb
from bench.harness.mysql import SERVERS
from msgplatform.core.servers.private_server import PrivateServer, RedisServer

DATABASE = os.environ.get("TEST_DATABASE", "sqlite")
# For a test that needs a server of its own.
DatabaseServer = SERVERS.get(DATABASE, MariaDb)
# What a developer's shell may carry, and would lead tests to real servers.
_FOREIGN = (
    "AGENT_API_KEY",
    "AGENT_API_KEY_FILE",
    "AGENT_DATABASE_URL",
    "AGENT_DATABASE_URL_FILE",
    "AGENT_INTAKE_URL",
    "AGENT_METRICS",
    "ALLOWED_HOSTS",
    "API_NUM_PROXIES",
    "API_RATE_FAILED",
    "API_RATE_READ",
    "API_RATE_WRITE",
    "CELL",
    "CELL_URLS",
    "COLD_DATABASE_URL",
    "DEBUG",
    "MSGPLATFORM_FAILPOINT",
    "METRICS_TOKEN",
    "MSGPLATFORM_PROFILE",
    "OUTBOUND",
    "OUTBOUND_ALLOW",
    "OUTBOUND_CA_FILE",
    "OUTBOUND_PROXY",
    "TIME_ZONE",
)
_SECRETS = (
    "SECRET_KEY", "ENCRYPTION_KEY", "DATABASE_URL", "COLD_DATABASE_URL", "REDIS_URL",
    "SMS_REDIS_URL",
)  # fmt: skip
# A busy machine may take that long; a server that ends at its start is noticed at once.
RedisServer.start_seconds = MariaDb.start_seconds = 300.0


PrivateServer.start_seconds = 300.0  # a busy machine starts them slowly


class Servers:
    """The servers of this run."""

    def __init__(self) -> None:
        # Short, because a socket's path may have only 107 bytes.
        self.directory = Path(tempfile.mkdtemp(prefix="mp-test-"))
        self.owner = os.getpid()
        self.state = self.directory / "state"
        self.state.mkdir(mode=0o700)
        run = self.state / "run"
        self.work = RedisServer(self.directory / "work", run / "work.sock")
        self.sms = RedisServer(self.directory / "sms", run / "sms.sock", appendonly=True)
        for server in (self.work, self.sms):
            server.start_seconds = 180.0  # the machine may be busy
        # A server in another time zone: a time that is not made in UTC is seen as wrong.
        options: dict[str, str | int] = {
            "innodb_flush_log_at_trx_commit": 2,
            "default_time_zone": "+08:00",
        }
        self._mariadb: MariaDb = DatabaseServer(self.directory / "mariadb", options)

    def start(self) -> None:
        self.work.start()
        self.sms.start()
        if DATABASE in SERVERS:
            self.mariadb()

    def mariadb(self) -> MariaDb:
        """The run's MariaDB, or MySQL with TEST_DATABASE=mysql, started when first asked for."""
        return self._mariadb.start()

    def database_url(self) -> str:
        if DATABASE in SERVERS:
            return self._mariadb.url("msgplatform")
        if DATABASE == "sqlite":
            return f"sqlite:///{self.state / 'msgplatform.db'}"
        raise pytest.UsageError(f"TEST_DATABASE={DATABASE!r}: sqlite, mariadb or mysql")

    def set_environment(self) -> None:
        for name in (*_FOREIGN, *(f"{name}_FILE" for name in _SECRETS)):
            os.environ.pop(name, None)
        os.environ.update(
            DJANGO_SETTINGS_MODULE="msgplatform.settings",
            DATABASE_URL=self.database_url(),
            REDIS_URL=self.work.url,
            SMS_REDIS_URL=self.sms.url,
            STATE_DIR=str(self.state),
            SECRET_KEY="a key for tests only, long enough for Django's check of its length",
            ENCRYPTION_KEY="YSBrZXkgZm9yIHRlc3RzIG9ubHksIDMyIGJ5dGVzIG4=",
            PUBLIC_URL="http://testserver",
        )
        os.environ.setdefault("LOG_LEVEL", "WARNING")
        # Processes of `pytest -n` share that of the process that started them.
        os.environ.setdefault(migrated.FOLDER, str(self.directory / "migrated"))

    def stop(self) -> None:
        if os.getpid() != self.owner:  # a forked child that ends is not the end of the run
            return
        self.work.kill()
        self.sms.kill()
        self._mariadb.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


_servers: Servers | None = None


def _only_hands_out_tests() -> bool:
    """True in the process of `pytest -n` that starts the others, and runs no test itself."""
    counts = re.findall(r"(?:^| )-n ?(\w+)", " ".join(sys.argv[1:]))
    return "PYTEST_XDIST_WORKER" not in os.environ and counts[-1:] not in ([], ["0"])


def pytest_addoption() -> None:
    """The first hook that is called, at this plugin's import: servers start, variables are set."""
    global _servers
    if _servers is not None:
        return
    _servers = Servers()
    # Also when pytest ends before the hooks that close a run, as for a wrong option.
    atexit.register(_servers.stop)
    if not _only_hands_out_tests():
        _servers.start()
    _servers.set_environment()


def pytest_configure() -> None:
    from django.conf import settings as django_settings
    from django.db import connections

    from tests import emptying, served_files

    django_settings.PASSWORD_HASHERS = ["tests.hashers.QuickHasher"]
    emptying.install()
    served_files.install()
    for alias in connections:
        settings = connections[alias].settings_dict
        # SQLite's default is in memory, which no other process and hardly a thread can share.
        settings["TEST"]["NAME"] = settings["NAME"]


@pytest.fixture(scope="session")
def servers() -> Servers:
    """The servers of this run, to be looked at or killed; a killed one must be started again."""
    assert _servers is not None
    return _servers


@pytest.fixture(scope="session")
def mariadb(servers: Servers) -> MariaDb:
    """A running MariaDB, whatever TEST_DATABASE is; make databases with `create(name)`."""
    return servers.mariadb()


@pytest.fixture
def work_redis(servers: Servers) -> Iterator[object]:
    """A client of the work Redis, empty before and after the test."""
    from msgplatform.core import connections

    client = connections.work_redis()
    client.flushall()
    yield client
    client.flushall()


@pytest.fixture
def sms_redis(servers: Servers) -> Iterator[object]:
    """A client of the SMS Redis, empty before and after the test."""
    from gateway.connections import SMS

    client = SMS.client()
    client.flushall()
    yield client
    client.flushall()
