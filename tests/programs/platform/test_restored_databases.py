"""Dumps for another user, or cut short, a server with a binary log, a node of Galera: `migrate`,
`doctor` and `up` say what is wrong, and `migrate` repairs what it can."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from configparser import ConfigParser
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest

from bench.harness.mariadb import MariaDb
from msgplatform.core.servers.private_server import free_port
from tests.cluster import ROOT
from tests.program_host import run_program
from tests.servers import DatabaseServer
from tests.support.command_console import CommandConsole

FULL = bool(os.environ.get("MSGPLATFORM_FULL_LOAD"))
DATABASE = "plat"
OLD_USER, NEW_USER = "'plat'@'localhost'", "'app2'@'localhost'"
NEW_LEAD = """
import django
django.setup()
from crmsync.intake.intake import NewLead, add
from msgplatform.core.errors import PlatformError
try:
    print(add(NewLead(1, "a", key="k")).outcome)
except PlatformError as error:
    print(type(error).__name__)
"""
Ended = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    """With a binary log, as for replicas and point-in-time recovery."""
    folder = tmp_path_factory.mktemp("db")
    options: dict[str, str | int] = {
        "log_bin": str(folder / "binlog"), "innodb_flush_log_at_trx_commit": 2,
    }  # fmt: skip
    server = DatabaseServer(folder / "s", options).start()
    yield server
    server.kill()


@pytest.fixture
def galera_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    """Alone, without a binary log, and as deployed otherwise."""
    settings = ConfigParser(interpolation=None)
    settings.read(ROOT / "deploy" / "galera" / "galera.cnf")
    options: dict[str, str | int] = {
        **settings["mariadbd"], "bind_address": "127.0.0.1", "wsrep_cluster_address": "gcomm://",
        "wsrep_node_address": "127.0.0.1", "innodb_flush_log_at_trx_commit": 2,
        "wsrep_provider_options":
            f"gmcast.listen_addr=tcp://127.0.0.1:{free_port()};gcache.size=8M",
    }  # fmt: skip
    node = MariaDb(tmp_path_factory.mktemp("node") / "s", options).start()
    yield node
    node.kill()


@pytest.fixture(autouse=True)
def empty(server: MariaDb) -> None:
    server.execute("SET GLOBAL log_bin_trust_function_creators = 0")
    make_empty(server)


def make_empty(server: MariaDb) -> None:
    """A database, and two users with all rights to it."""
    server.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
    server.execute(f"CREATE DATABASE {DATABASE}")
    for user in (OLD_USER, NEW_USER):
        server.execute(f"DROP USER IF EXISTS {user}")
        server.execute(f"CREATE USER {user}")
        server.execute(f"GRANT ALL ON {DATABASE}.* TO {user}")


def url_of(server: MariaDb, user: str) -> str:
    name = user.split("'")[1]
    return f"mysql://{name}@localhost/{DATABASE}?unix_socket={quote(str(server.socket))}"


def python(
    server: MariaDb, user: str, folder: Path, *words: str
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DATABASE_URL": url_of(server, user), "STATE_DIR": str(folder)}
    return run_program([sys.executable, *words], environment)


def manage(server: MariaDb, user: str, folder: Path, *words: str) -> tuple[int, str]:
    """Run a command in a process of its own; its code, and all that it wrote."""
    done = python(server, user, folder, "manage.py", *words)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def consoles(
    server: MariaDb, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, CommandConsole]]:
    """A process of each user, for commands one after another."""
    started = {
        user: CommandConsole(url_of(server, user), tmp_path_factory.mktemp("user"))
        for user in (OLD_USER, NEW_USER)
    }
    yield started
    for console in started.values():
        console.close()


@pytest.fixture
def ended(consoles: Mapping[str, CommandConsole]) -> Ended:
    """Runs a command as a user; its code, and all that it wrote."""

    def run(user: str, *words: str) -> tuple[int, str]:
        end = consoles[user].manage(*words)
        return end.returncode, end.stdout + end.stderr

    return run


def dump(server: MariaDb) -> bytes:
    return subprocess.run(
        ["mariadb-dump", f"--socket={server.socket}", "--user=root", "--single-transaction",
         "--routines", "--triggers", "--databases", DATABASE],
        capture_output=True, timeout=300, check=True,
    ).stdout  # fmt: skip


def load(server: MariaDb, content: bytes, user: str = "root") -> int:
    server.execute(f"DROP DATABASE {DATABASE}")
    server.execute(f"CREATE DATABASE {DATABASE}")
    done = subprocess.run(
        ["mariadb", f"--socket={server.socket}", f"--user={user}"],
        input=content, capture_output=True, timeout=300, check=False,
    )  # fmt: skip
    return done.returncode


@pytest.fixture(scope="module")
def old_dump(server: MariaDb, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Of a database whose triggers the old user has made."""
    folder = tmp_path_factory.mktemp("old")
    server.execute("SET GLOBAL log_bin_trust_function_creators = 1")
    server.execute(f"CREATE OR REPLACE DATABASE {DATABASE}")
    server.execute(f"DROP USER IF EXISTS {OLD_USER}")
    server.execute(f"CREATE USER {OLD_USER}")
    server.execute(f"GRANT ALL ON {DATABASE}.* TO {OLD_USER}")
    code, said = manage(server, OLD_USER, folder, "migrate")
    assert code == 0, said
    return dump(server)


def trust(server: MariaDb) -> None:
    server.execute("SET GLOBAL log_bin_trust_function_creators = 1")


def test_a_dump_for_another_user_takes_leads_after_migrate(
    old_dump: bytes, server: MariaDb, tmp_path: Path, ended: Ended,
    consoles: Mapping[str, CommandConsole],
) -> None:  # fmt: skip
    """The triggers run as a user that is not there."""
    assert load(server, old_dump) == 0
    server.execute(f"DROP USER {OLD_USER}")
    refused = python(server, NEW_USER, tmp_path, "-c", NEW_LEAD)
    assert refused.stdout.split() == ["Unavailable"], "nothing was written"
    assert re.search(r"group_commit_failed.*\(1449, |\(1449, .*group_commit_failed", refused.stderr)
    assert "error" in refused.stderr
    code, said = ended(NEW_USER, "doctor")
    assert code == 1
    assert "run as plat@localhost, and this user is app2@localhost" in said
    trust(server)
    code, said = ended(NEW_USER, "migrate")
    assert (code, "No migrations to apply" in said) == (0, True)
    assert consoles[NEW_USER].run(NEW_LEAD).split() == ["created"]
    code, said = ended(NEW_USER, "doctor")
    assert "the triggers of the table lead are there" in said


def test_a_binary_log_is_told_before_the_first_migration(
    server: MariaDb, tmp_path: Path, ended: Ended
) -> None:
    up = manage(server, OLD_USER, tmp_path, "up", "--migrate", "--port", str(free_port()))
    others = (["migrate"], ["check", "--database", "default"])
    for code, said in (up, *(ended(OLD_USER, *words) for words in others)):
        assert code == 1
        assert "Traceback" not in said
        assert "SET GLOBAL log_bin_trust_function_creators = 1" in said
        assert not server.execute(f"SHOW TABLES FROM {DATABASE}"), "nothing was done"


def test_a_node_of_galera_lets_this_user_make_triggers_as_deployed(
    galera_node: MariaDb, tmp_path: Path
) -> None:
    """It emulates a binary log, and refuses triggers as a server that has one."""
    make_empty(galera_node)
    check = ["check", "--database", "default"]
    with closing(CommandConsole(url_of(galera_node, OLD_USER), tmp_path)) as console:
        end = console.manage(*check)
        assert end.returncode == 0, end.stderr
        galera_node.execute("SET GLOBAL log_bin_trust_function_creators = 0")
        for words in (["migrate"], check):
            end = console.manage(*words)
            assert end.returncode == 1
            assert "does not let this user make triggers" in end.stderr
            assert not galera_node.execute(f"SHOW TABLES FROM {DATABASE}"), "nothing was done"


def test_a_user_that_may_make_triggers_is_let_through(
    old_dump: bytes, server: MariaDb, ended: Ended
) -> None:
    assert load(server, old_dump) == 0
    check = ["check", "--database", "default"]
    # Made already: nothing has to be allowed any more.
    assert ended(OLD_USER, *check)[0] == 0
    assert ended(NEW_USER, *check)[0] == 1
    server.execute(f"GRANT SUPER ON *.* TO {NEW_USER}")
    assert ended(NEW_USER, *check)[0] == 0


def test_a_migration_that_was_killed_in_the_middle_is_told(
    old_dump: bytes, server: MariaDb, ended: Ended
) -> None:
    """Its first change is there, and it is not noted as applied."""
    assert load(server, old_dump) == 0
    trust(server)
    server.execute(f"DELETE FROM {DATABASE}.django_migrations WHERE app = 'gateway'")
    code, said = ended(OLD_USER, "migrate")
    assert code == 1
    assert "already exists: a migrate was killed in the middle" in said
    assert "Traceback" not in said


def test_doctor_looks_at_the_sync_of_the_binary_log(
    old_dump: bytes, server: MariaDb, ended: Ended
) -> None:
    assert load(server, old_dump) == 0
    warning = "a binary log with sync_binlog=0: a power cut loses accepted messages"
    try:
        for flush, sync, is_warned in ((1, 0, True), (1, 1, False), (3, 0, False)):
            server.execute(f"SET GLOBAL innodb_flush_log_at_trx_commit = {flush}")
            server.execute(f"SET GLOBAL sync_binlog = {sync}")
            _, said = ended(OLD_USER, "doctor")
            assert (warning in said, "innodb_flush_log_at_trx_commit" in said) == (is_warned, False)
            assert "binlog_format" not in said
        server.execute("SET GLOBAL binlog_format = 'STATEMENT'")
        _, said = ended(OLD_USER, "doctor")
        assert "binlog_format=STATEMENT: the server refuses every change" in said
    finally:
        server.execute("SET GLOBAL binlog_format = 'MIXED'")
        server.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
        server.execute("SET GLOBAL sync_binlog = 0")


def test_doctor_warns_before_connections_run_out(
    old_dump: bytes, server: MariaDb, ended: Ended
) -> None:
    assert load(server, old_dump) == 0
    for session in [server.connect(DATABASE) for _ in range(9)]:
        session.close()
    server.execute("SET GLOBAL max_connections = 10")
    try:
        _, said = ended(OLD_USER, "doctor")
        assert "max_connections=10: " in said
    finally:
        server.execute("SET GLOBAL max_connections = 500")
    _, said = ended(OLD_USER, "doctor")
    assert "max_connections" not in said


def test_a_load_that_stopped_is_told(
    old_dump: bytes, server: MariaDb, tmp_path: Path, ended: Ended
) -> None:
    """Loaded by the platform's user, who may not make triggers on a server with a binary log."""
    assert load(server, old_dump, user="plat") != 0
    trust(server)
    up = manage(server, OLD_USER, tmp_path, "up", "--port", str(free_port()))
    for code, said in (ended(OLD_USER, "migrate"), up, ended(OLD_USER, "doctor")):
        assert code == 1
        assert "the load of a dump was cut short" in said
        assert "Traceback" not in said
    assert "1146" not in said
    assert "--fake" not in said


DUMP = """#!{python}
import pathlib, re, subprocess, sys
pathlib.Path({calls!r}).open("a").write("x")
content = subprocess.run([{program!r}, *sys.argv[1:]], stdout=subprocess.PIPE, check=True).stdout
if len(pathlib.Path({calls!r}).read_text()) <= {times}:
    content = re.sub({pattern!r}, b"", content, count=1)
sys.stdout.buffer.write(content)
"""


@pytest.mark.parametrize(
    ("pattern", "times", "said"),
    [
        (rb"(?s)\nINSERT INTO `django_migrations`.*", 3, "ended early"),
        (rb"(?s)\nCREATE TABLE `sgip_user_rpt` .*?;", 3, "lacks tables (sgip_user_rpt)"),
        (rb"(?s)\nCREATE TABLE `sgip_user_rpt` .*?;", 1, "The backup is whole"),
    ],
    ids=["cut short", "without a table", "whole at the second try"],
)
def test_a_dump_that_lacks_something_is_made_once_more(
    old_dump: bytes, server: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    pattern: bytes, times: int, said: str,
) -> None:  # fmt: skip
    """A server does not list a table in the moment in which it alters it."""
    assert load(server, old_dump) == 0
    program, calls = shutil.which("mariadb-dump"), tmp_path / "calls"
    tool = tmp_path / "bin" / "mariadb-dump"
    tool.parent.mkdir()
    tool.write_text(
        DUMP.format(
            python=sys.executable, calls=str(calls), program=program, times=times, pattern=pattern
        )
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=os.pathsep)
    folder = tmp_path / "backup"
    code, words = manage(server, OLD_USER, tmp_path / "state", "backup", str(folder))
    is_whole = "whole" in said
    assert (code, said in words) == (int(not is_whole), True), words
    assert (folder / "manifest.json").exists() is is_whole
    assert len(calls.read_text()) == min(times + 1, 3)


def test_doctor_before_migrate_says_only_that(server: MariaDb, ended: Ended) -> None:
    trust(server)
    assert ended(OLD_USER, "migrate", "msgplatform", "0001")[0] == 0
    code, said = ended(OLD_USER, "doctor")
    assert code == 1
    assert "migrations that are not applied" in said
    lines = [line for line in said.splitlines() if line.startswith("BAD")]
    assert len([line for line in lines if "migrat" in line]) == 1
    assert not [line for line in lines if "1146" in line or "1054" in line or "trigger" in line]
    if FULL:  # a migrate from here on is that of any release
        assert ended(OLD_USER, "migrate")[0] == 0
