"""A backup is restored into an empty database; one that is damaged, or does not fit, is refused."""

import io
import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
from allauth.usersessions.models import UserSession
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.backends.mysql.client import DatabaseClient
from django.test import Client, override_settings
from django.urls import reverse
from django.utils import timezone

from crmsync import copies, orders
from crmsync.models import Operation, Policy
from msgplatform import env
from msgplatform.core.data import engines, sql
from msgplatform.core.secrets import encryption
from msgplatform.core.servers.private_server import (
    RedisServer,
    find_program,
    free_port,
    private_directory,
)
from msgplatform.models import Biz
from msgplatform.operation.backup import backup, restore
from msgplatform.operation.supervision.run import Lock, is_running
from notify.models import ColdBizMsg
from tests import servers as own_servers
from tests.integration.crmsync import sync_support
from tests.program_host import run_program
from tests.redis_client import connect
from tests.servers import Servers
from tests.support.archive_support import cold_database, old_id
from tests.support.hanging_servers import hanging
from tests.waiting import freeze, pause

pytestmark = [
    # The load is reached by the command only.
    pytest.mark.both_databases("msgplatform/operation/backup/restore.py"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis", "sms_redis"),
]
NAMES = """
import django
django.setup()
from django.contrib.sessions.models import Session
from crmsync.models import Record
from msgplatform.models import Biz
from notify.models import ColdBizMsg
print(*Biz.objects.values_list("name", flat=True), *ColdBizMsg.objects.values_list("payload"),
    *Session.objects.values_list("session_key", flat=True),
    *Record.objects.values_list("key", "state"))
"""
TABLES = "from django.db import connection; print(connection.introspection.table_names())"
ERASURES = '{"key": "a", "cancelled": true}\n'


@pytest.fixture
def archive(servers: Servers, tmp_path: Path) -> Iterator[str]:
    """The URL of an archive in a database of its own, with a message."""
    server = servers.mariadb() if engines.of().is_server else None
    with cold_database(tmp_path, server) as url:
        now = timezone.now()
        ColdBizMsg.objects.create(
            id=7, biz_id=1, event_type="order.paid", payload=b"old", created_at=now, archived_at=now
        )
        yield url


@pytest.fixture
def policy() -> Policy:
    return sync_support.policy(sync_support.crm())


@pytest.fixture
def folder(tmp_path: Path, settings: Any) -> Path:
    """A backup, with its keys in another folder."""
    settings.STATE_DIR, settings.AUDIT_SIGNING_KEYS = tmp_path / "old", ("new", "old")
    settings.STATE_DIR.mkdir()
    (settings.STATE_DIR / backup.ERASURES).write_text(ERASURES)
    Biz.objects.create(name="shop")
    if engines.of() is engines.SQLITE:  # its statistics are tables that no dump has
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
    folder, dumped_at = tmp_path / "backup", []
    manifest = backup.make(folder, tmp_path / "keys", lambda text: dumped_at.append(sql.now()))
    assert datetime.fromisoformat(manifest["began_at"]) < dumped_at[0]
    return folder


def empty_database(servers: Servers, tmp_path: Path, name: str) -> str:
    if own_servers.DATABASE == "sqlite":
        return f"sqlite:///{tmp_path / f'{name}.db'}"
    return servers.mariadb().create(name)


def empty_installation(servers: Servers, tmp_path: Path) -> dict[str, str]:
    """The environment of an installation that has nothing yet."""
    return {
        **os.environ, "STATE_DIR": str(tmp_path / "state"),
        "DATABASE_URL": empty_database(servers, tmp_path, "restored"),
    }  # fmt: skip


def run(environment: dict[str, str], *words: str) -> tuple[int, str]:
    done = run_program([sys.executable, *words], environment, 600)
    return done.returncode, done.stdout + done.stderr


def be_older(folder: Path, policy: Policy) -> None:
    """The backup began three hours ago, and an operation a little later: it is not in the backup,
    and Redis has its copy."""
    manifest = json.loads((folder / backup.MANIFEST).read_text())
    began_at = sql.now() - timedelta(hours=3)
    manifest["began_at"] = began_at.isoformat()
    (folder / backup.MANIFEST).write_text(json.dumps(manifest))
    data = orders.dump(sync_support.requests(["a"]))
    start_at = int(began_at.timestamp() * 1000) + 1000
    copies.keep(
        Operation(id=old_id(0.12), policy_id=policy.pk, data=data, records=1, start_at=start_at)
    )


def add_session(folder: Path) -> None:
    """As backups of earlier releases have them."""
    manifest = json.loads((folder / backup.MANIFEST).read_text())
    path = folder / manifest["databases"]["default"]["file"]
    statement = "INSERT INTO django_session VALUES ('stolen', '', '2999-01-01 00:00:00');"
    if engines.of().is_server:
        with path.open("a") as file:
            file.write(f"{statement}\n")
    else:
        with closing(sqlite3.connect(path, isolation_level=None)) as copy:
            copy.execute(statement)
    manifest["files"] = backup.digests(folder)
    (folder / backup.MANIFEST).write_text(json.dumps(manifest))


def test_it_comes_back(
    archive: str, policy: Policy, folder: Path, servers: Servers, tmp_path: Path
) -> None:
    """The database, the archive in one of its own, the list of erasures, and what CRMs got since
    the backup began. A session that was ended stays so."""
    add_session(folder)
    be_older(folder, policy)
    assert folder.stat().st_mode & 0o777 == 0o700
    environment = {
        **os.environ, "STATE_DIR": str(tmp_path / "state"),
        "DATABASE_URL": empty_database(servers, tmp_path, "restored"),
        "COLD_DATABASE_URL": empty_database(servers, tmp_path, "restored_archive"),
    }  # fmt: skip
    code, said = run(environment, "manage.py", "restore", str(folder))
    assert code == 0, said
    for step in ("loaded", "migrated", "sync_recover --since", "emptied", "sms_recover"):
        assert step in said
    assert max(said.index("sync_recover"), said.index("sms_recover")) < said.index("emptied")
    assert run(environment, "-c", NAMES) == (0, "shop (b'old',) ('a', 0)\n")
    assert (tmp_path / "state" / backup.ERASURES).read_text() == ERASURES
    code, said = run(environment, "manage.py", "restore", str(folder))
    assert (code, "is not empty" in said) == (1, True), said


def test_a_restore_that_failed_leaves_the_work_redis(
    folder: Path, servers: Servers, tmp_path: Path, work_redis: Any
) -> None:
    """What CRMs got since the backup is only there, and a repeated restore reads it once more. This
    machine's list of erasures is newer than the backup's, and stays."""
    work_redis.set("fact", 1)
    erasures = private_directory(tmp_path / "state") / backup.ERASURES
    erasures.write_text("newer\n")
    environment = empty_installation(servers, tmp_path)
    command = ("manage.py", "restore", str(folder))
    code, said = run({**environment, "SMS_REDIS_URL": "redis://127.0.0.1:1/0"}, *command)
    assert (code, "sms_recover" in said) == (1, True), said
    assert work_redis.exists("fact")
    environment["DATABASE_URL"] = empty_database(servers, tmp_path, "once_more")
    code, said = run(environment, *command)
    assert (code, work_redis.exists("fact"), erasures.read_text()) == (0, 0, "newer\n"), said


def test_the_manifest_names_every_table(folder: Path) -> None:
    manifest = json.loads((folder / backup.MANIFEST).read_text())
    (database,) = manifest["databases"].values()
    assert set(connection.introspection.table_names()) <= set(database["tables"])
    assert {"redis-sms", database["file"].split("/")[0]} <= {
        name.split("/")[0] for name in manifest["files"]
    }


def test_each_key_has_a_file(folder: Path, tmp_path: Path, settings: Any) -> None:
    """With the name that the settings look for in STATE_DIR."""
    files = list((tmp_path / "keys").iterdir())
    assert {path.name: path.read_text() for path in files} == {
        "secret_key": f"{settings.SECRET_KEY}\n", "audit_signing_key": "new,old\n",
        "encryption_key": f"{','.join(settings.ENCRYPTION_KEYS)}\n",
    }  # fmt: skip
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_nobodys_session_is_in_it(admin_client: Client, tmp_path: Path) -> None:
    """The value of the cookie would let a reader of the backup in."""
    assert admin_client.get(reverse("console:sessions")).status_code == 200
    key = UserSession.objects.get().session_key
    assert key == admin_client.cookies["sessionid"].value
    folder = tmp_path / "backup"
    backup.make(folder, None, lambda text: None)
    contents = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    assert any(b"usersessions_usersession" in content for content in contents)
    assert not any(key.encode() in content for content in contents)


def damage(folder: Path, manifest: dict[str, Any]) -> None:
    (database,) = manifest["databases"].values()
    path = folder / database["file"]
    path.write_bytes(path.read_bytes()[:-10])


def be_newer(folder: Path, manifest: dict[str, Any]) -> None:
    manifest["databases"]["default"]["migrations"].append("msgplatform.9999_future")
    (folder / backup.MANIFEST).write_text(json.dumps(manifest))


def be_of_another_engine(folder: Path, manifest: dict[str, Any]) -> None:
    manifest["databases"]["default"]["is_file"] ^= True
    (folder / backup.MANIFEST).write_text(json.dumps(manifest))


def be_of_two(folder: Path, manifest: dict[str, Any]) -> None:
    manifest["databases"]["cold"] = manifest["databases"]["default"]
    (folder / backup.MANIFEST).write_text(json.dumps(manifest))


def end_early(folder: Path, manifest: dict[str, Any]) -> None:
    (folder / backup.MANIFEST).unlink()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (damage, "is not what was backed up"), (be_of_two, "set COLD_DATABASE_URL"),
        (end_early, "is no whole backup"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(folder: Path, change: Any, said: str) -> None:
    change(folder, json.loads((folder / backup.MANIFEST).read_text()))
    with pytest.raises(backup.BackupRefused, match=said):
        restore.restore(folder, lambda text: None)
    assert Biz.objects.get().name == "shop"


def test_an_empty_database_takes_no_backup_of_others(
    folder: Path, servers: Servers, tmp_path: Path
) -> None:
    environment = empty_installation(servers, tmp_path)
    manifest = (folder / backup.MANIFEST).read_text()
    for change, text in ((be_newer, "of a newer release"), (be_of_another_engine, "is one of")):
        change(folder, json.loads(manifest))
        code, said = run(environment, "manage.py", "restore", str(folder))
        assert (code, text in said) == (1, True), said
    assert run(environment, "-c", f"import django; django.setup(); {TABLES}") == (0, "[]\n")


def test_a_tool_that_hangs_is_ended(tmp_path: Path) -> None:
    """Another session keeps a table locked; a file is copied by no tool."""
    if not engines.of().is_server:
        return
    command, environment = backup.client_command(connection, engines.of().dump_programs)
    owner = connection.copy()
    try:
        with (
            (tmp_path / "dump").open("wb") as file,
            engines.of().lock_table(owner, "attempt"),
            pytest.raises(backup.ToolHangs, match="nothing for 2 s"),
        ):
            backup.run_tool(command, environment, lambda: os.fstat(file.fileno()).st_size, 2.0,
                            stdout=file)  # fmt: skip
    finally:
        owner.close()


def test_a_backup_that_does_not_fit_is_not_repeated_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, limits = tmp_path / "calls", resource.getrlimit(resource.RLIMIT_FSIZE)
    if tool := find_program(*engines.of().dump_programs):
        script = private_directory(tmp_path / "bin") / tool.name
        script.write_text(f'#!/bin/sh\necho >> {calls}; echo part; exec {tool} "$@" > /dev/full')
        script.chmod(0o700)
        monkeypatch.setenv("PATH", str(script.parent), prepend=os.pathsep)
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
        calls.write_text("\n")
    try:
        with pytest.raises(CommandError, match="There is no backup: "):
            call_command("backup", str(tmp_path / "new"), "--keys", str(tmp_path / "keys"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert calls.read_text() == "\n"
    assert not {tmp_path / "new", tmp_path / "keys"} & set(tmp_path.iterdir())


def test_a_backup_that_is_ended_leaves_nothing(
    folder: Path, servers: Servers, tmp_path: Path
) -> None:
    """A pipe gets each step at once."""
    environment = empty_installation(servers, tmp_path)
    code, said = run(environment, "manage.py", "restore", str(folder))
    assert code == 0, said
    pid, tool = tmp_path / "pid", private_directory(tmp_path / "bin") / "redis-cli"
    tool.write_text(f"#!/bin/sh\necho $$ > {pid}.part; mv {pid}.part {pid}; exec sleep 100")
    tool.chmod(0o700)
    environment["PATH"] = f"{tool.parent}{os.pathsep}{os.environ['PATH']}"
    command = [sys.executable, "manage.py", "backup", str(tmp_path / "new")]
    with subprocess.Popen(
        [*command, "--keys", str(tmp_path / "new-keys")], env=environment, text=True,
        stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout
        assert "Database default: " in process.stdout.readline()
        begun = time.monotonic()
        while not pid.exists():
            assert process.poll() is None
            pause(begun, 0.05)
        process.terminate()
    assert process.returncode == 143
    assert not list(tmp_path.glob("new*"))
    assert not psutil.pid_exists(int(pid.read_text()))


def test_a_backup_counts_though_this_machine_cannot_note_it(tmp_path: Path, settings: Any) -> None:
    settings.STATE_DIR, out = private_directory(tmp_path / "state"), io.StringIO()
    (settings.STATE_DIR / backup.LAST).symlink_to(tmp_path / "none" / "there")
    call_command("backup", str(tmp_path / "new"), stdout=out)
    assert "`update` will not know of this backup: " in out.getvalue()
    assert (tmp_path / "new" / backup.MANIFEST).exists()


class TlsRedis(RedisServer):
    """It asks its clients for a certificate."""

    tls_port = 0

    @property
    def argv(self) -> list[str]:
        names = ("cert", "key", "ca-cert")
        files = [word for name in names for word in (f"--tls-{name}-file", f"{self.directory}.pem")]
        return [*super().argv, "--tls-port", str(self.tls_port), *files]


@pytest.mark.parametrize("trust", ["ssl_ca_certs={}", "ssl_cert_reqs=none"])
def test_a_redis_that_asks_for_a_certificate_is_copied(
    tmp_path: Path, settings: Any, trust: str
) -> None:
    pem = tmp_path / "tls.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    done = subprocess.run(
        [*command.split(), *names, "-keyout", "-"], capture_output=True, check=True
    )
    pem.write_bytes(done.stdout)
    server = TlsRedis(tmp_path / "tls", tmp_path / "tls.sock")
    server.tls_port = free_port()
    options = f"ssl_certfile={pem}&{trust.format(pem)}"
    settings.SMS_REDIS_URL = f"rediss://localhost:{server.tls_port}/0?{options}"
    settings.STATE_DIR = tmp_path / "state"
    with server:
        manifest = backup.make(tmp_path / "backup", None, print)
    assert any(name.startswith("redis-sms/") for name in manifest["files"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("ssl=true", ["--loose-ssl=1", "--loose-ssl-verify-server-cert=0"]),
        ("ssl=0", ["--loose-ssl=0", "--loose-ssl-verify-server-cert=0"]),
        ("ssl_mode=VERIFY_CA", ["--loose-ssl=1", "--loose-ssl-verify-server-cert=1"]),
    ],
)
def test_tools_are_as_strict_about_certificates_as_programs(options: str, words: list[str]) -> None:
    config = env.parse_database(f"mysql://user@host/name?{options}")
    tool = cast(Any, SimpleNamespace(client=DatabaseClient, settings_dict=config))
    command, _environment = backup.client_command(tool, ["true"])
    assert [word for word in command if "ssl" in word and "-mode=" not in word] == words


def run_id(url: str) -> str:
    """The server that a new connection reaches."""
    client: Any = connect(url)
    return str(client.info("server")["run_id"])


def test_a_slow_redis_of_up_gets_no_second_one(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one would take the socket, and write into the file of the first. Without an `up`
    it starts, and no `up` does meanwhile."""
    settings.STATE_DIR = tmp_path
    first, second = (
        RedisServer(tmp_path / "r", tmp_path / "r.sock", appendonly=True) for _ in range(2)
    )
    monkeypatch.setattr(backup, "embedded_redis", lambda: {"redis-sms": second})
    lock = Lock(private_directory(tmp_path / "run"))
    lock.take()
    with first:
        assert first.pid
        first_id = run_id(first.url)
        freeze(first.pid)
        threading.Timer(3, os.kill, [first.pid, signal.SIGCONT]).start()
        with backup.embedded_servers():
            assert second.pid is None
        assert run_id(first.url) == first_id
        monkeypatch.setattr(backup, "_ANSWER_SECONDS", 0.0)
        with (
            hanging(first),
            pytest.raises(backup.BackupRefused, match="redis-sms does not answer"),
            backup.embedded_servers(),
        ):
            pass
    lock.release()
    with backup.embedded_servers():
        assert (bool(second.pid), is_running(tmp_path)) == (True, True)
    assert (second.pid, is_running(tmp_path)) == (None, False)


def test_a_missing_tool_is_named_before_the_first_dump(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(backup.BackupRefused, match="is not installed"):
        backup.make(tmp_path / "backup", None, lambda text: None)
    assert not (tmp_path / "backup").exists()


def test_another_key_is_refused(folder: Path) -> None:
    with (
        override_settings(ENCRYPTION_KEYS=(encryption.new_key(),)),
        pytest.raises(backup.BackupRefused, match="ENCRYPTION_KEY"),
    ):
        restore.restore(folder, lambda text: None)


def test_nothing_is_written_over(folder: Path) -> None:
    with pytest.raises(backup.BackupRefused, match="is not empty"):
        backup.make(folder, None, lambda text: None)
    with pytest.raises(backup.BackupRefused, match="protect nothing"):
        backup.make(folder.parent / "a", folder.parent / "a" / "keys", lambda text: None)
    assert (folder / backup.MANIFEST).exists()
