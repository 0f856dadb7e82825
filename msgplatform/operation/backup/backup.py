"""A backup: a folder with a dump of each database by the engine's own tool, a copy of each Redis
whose data is not in a database, and the list of erasures. The keys go into another folder.

Nobody's session is in it: a session's key is all that a browser needs to be signed in.

The main database comes before the archive's, and Redis last: a message that moves meanwhile is in
both copies, never missing. Each dump is checked, and repeated if a table changed during the dump.
`manifest.json` is written last: a folder without it is no backup.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from django.conf import settings
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.recorder import MigrationRecorder

from msgplatform import __version__
from msgplatform.core.connections import RedisRole
from msgplatform.core.data import engines, migration_stages, sql
from msgplatform.core.errors import NotNow, Permanent
from msgplatform.core.flows.programs import redis_roles
from msgplatform.core.secrets import key_files
from msgplatform.core.servers.private_server import RedisServer, find_program, private_directory
from msgplatform.operation.supervision.platform import embedded_redis
from msgplatform.operation.supervision.run import Lock, Refused

MANIFEST = "manifest.json"
LAST = "last_backup"  # a file in STATE_DIR, as old as the last backup that this machine made
ERASURES = "erasures.jsonl"  # of the feature `company/person_data`
_TRIES = 3
# A tool that neither reads nor writes for so long hangs: its server is frozen, or a lock is kept.
MAX_IDLE_SECONDS = 300.0
# For the Redis servers of an `up`: one that starts prepares its tables first.
_ANSWER_SECONDS, _POLL_SECONDS = 60.0, 0.2
# Only MySQL's own tools know the option that begins with `loose`; MariaDB's ignore it.
_DUMP_OPTIONS = (
    "--single-transaction", "--skip-triggers", "--hex-blob", "--no-tablespaces",
    "--loose-set-gtid-purged=OFF",
)  # fmt: skip
# redis-cli's names for the parameters of redis-py that stand in a URL.
_REDIS_FILES = {
    "ssl_ca_certs": "--cacert", "ssl_ca_path": "--cacertdir", "ssl_certfile": "--cert",
    "ssl_keyfile": "--key",
}  # fmt: skip
_TABLE = re.compile(rb"CREATE TABLE `([^`]+)` \(")
# Their rows have the keys of open sessions in clear.
SESSION_TABLES = frozenset({"django_session", "usersessions_usersession"})
_FILE_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'sqlite_sequence'"
# MySQL's and MariaDB's tools: the last line, and the exit code if the disk is full.
_END, _WRITE_FAILED = b"-- Dump completed", 5
Say = Callable[[str], None]
Manifest = dict[str, Any]


class BackupRefused(Permanent):
    """A tool is missing, or the folder, the database or the backup does not fit."""


class DumpIncomplete(NotNow):
    """A dump ended early or lacks a table. The next dump may be complete."""


class ToolHangs(NotNow):
    """A tool was ended, since it did nothing for too long."""


def make(folder: Path, keys_folder: Path | None, say: Say) -> Manifest:
    """Write a backup into a new folder. `say` gets a sentence for people after each step. Raises
    BackupRefused, DumpIncomplete, and errors of the servers; then the folders are removed."""
    _check_tools()
    with ExitStack() as removals:
        for path in filter(None, (folder, keys_folder)):
            if path.exists() and any(path.iterdir()):
                raise BackupRefused(f"{path} is not empty: name a new folder.")
            private_directory(path)
            removals.callback(shutil.rmtree, path, ignore_errors=True)
        if keys_folder and keys_folder.resolve().is_relative_to(folder.resolve()):
            raise BackupRefused(
                "Keys beside the data they encrypt protect nothing: name another place."
            )
        manifest: Manifest = {
            "version": __version__,
            "began_at": sql.now().isoformat(),
            "encryption_keys": sorted(map(key_files.fingerprint, settings.ENCRYPTION_KEYS)),
            "databases": {},
        }
        for alias in connections:
            began = time.monotonic()
            description = manifest["databases"][alias] = _dump(connections[alias], folder)
            seconds = time.monotonic() - began
            say(f"Database {alias}: {len(description['tables'])} tables ({seconds:.0f} s)")
        with embedded_servers():
            for role in filter(lambda role: role.is_truth, redis_roles()):
                _copy_redis(role, folder / f"redis-{role.name}")
                say(f"Redis of {role.variable}: copied")
        if (erasures := Path(settings.STATE_DIR) / ERASURES).exists():
            shutil.copy(erasures, folder)
        if keys_folder:  # one file for each key, with the name that settings look for in STATE_DIR
            keys = {
                "secret_key": "" if settings.SECRET_KEY_MISSING else settings.SECRET_KEY,
                "encryption_key": ",".join(settings.ENCRYPTION_KEYS),
                "audit_signing_key": ",".join(getattr(settings, "AUDIT_SIGNING_KEYS", ())),
            }
            for name, value in keys.items():
                if value:
                    path = keys_folder / name
                    path.touch(mode=0o600)
                    path.write_text(f"{value}\n", encoding="utf-8")
        else:
            say(
                "The keys are not in it: keep SECRET_KEY and ENCRYPTION_KEY elsewhere "
                "(--keys FOLDER)."
            )
        manifest["files"] = digests(folder)
        new_path = folder / f"{MANIFEST}.new"
        new_path.write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        with new_path.open("rb") as file:
            os.fsync(file.fileno())
        new_path.replace(folder / MANIFEST)
        removals.pop_all()
    mark = Path(settings.STATE_DIR) / LAST
    try:
        # A machine that only makes backups has none.
        mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mark.touch()
    except OSError as error:
        say(f"`update` will not know of this backup: {mark} cannot be written ({error.strerror}).")
    return manifest


def _check_tools() -> None:
    """Raises BackupRefused before the first dump, which may take hours."""
    for alias in connections:
        engine = engines.of(alias)
        if engine.is_server:
            client_command(connections[alias], engine.dump_programs)
    if any(role.is_truth for role in redis_roles()):
        _redis_cli()


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of each file of a backup but the manifest, by its path in the folder."""
    sums = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != MANIFEST:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256")
            sums[str(path.relative_to(folder))] = digest.hexdigest()
    return sums


@contextmanager
def embedded_servers() -> Iterator[None]:
    """Start the Redis servers that `up` runs by itself for the block; no `up` starts meanwhile. If
    one runs, wait for its servers instead: a second server would take the socket and write into the
    file of one that is only slow. Raises BackupRefused."""
    servers = embedded_redis()
    with ExitStack() as stack:
        if servers:
            run = Path(settings.STATE_DIR) / "run"
            for path in (run.parent, run):
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = Lock(run)
            try:
                lock.take()
            except Refused:
                _wait_for(servers)
            else:
                stack.callback(lock.release)
                for server in servers.values():
                    if not server.answers():
                        stack.enter_context(server)
        yield


def _wait_for(servers: Mapping[str, RedisServer]) -> None:
    """Raises BackupRefused."""
    deadline = time.monotonic() + _ANSWER_SECONDS
    while silent_names := [name for name, server in servers.items() if not server.answers()]:
        if time.monotonic() > deadline:
            raise BackupRefused(
                f"The platform runs in {settings.STATE_DIR}, and its {silent_names[0]} does not "
                "answer."
            )
        time.sleep(_POLL_SECONDS)


def run_tool(
    command: Sequence[str], environment: Mapping[str, str], progress: Callable[[], int],
    idle_seconds: float = MAX_IDLE_SECONDS, **streams: Any,
) -> tuple[int, str]:  # fmt: skip
    """Run a server's tool until its end. Returns its exit code and the text of its errors.
    `progress` changes as long as the tool works. Raises ToolHangs."""
    with tempfile.TemporaryFile() as errors:
        with subprocess.Popen(  # noqa: S603 - our own command line
            command, env=dict(environment), stderr=errors, **streams
        ) as process:
            try:
                last, changed_at = progress(), time.monotonic()
                while (code := process.poll()) is None:
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(1)
                    if (now := progress()) != last:
                        last, changed_at = now, time.monotonic()
                    elif time.monotonic() - changed_at > idle_seconds:
                        raise ToolHangs(
                            f"{Path(command[0]).name} has done nothing for {idle_seconds:.0f} s: "
                            "does its server answer, and does a program keep a table locked?"
                        )
            except BaseException:
                process.kill()
                raise
        errors.seek(0)
        return code, errors.read().decode(errors="replace").strip()


def client_command(
    connection: BaseDatabaseWrapper, names: Sequence[str], options: Sequence[str] = ()
) -> tuple[list[str], dict[str, str]]:
    """The command line of the first installed program of `names`, for the connection's database,
    and its environment with the password. Raises BackupRefused."""
    program = find_program(*names)
    if program is None:
        raise BackupRefused(f"{names[0]} is not installed: apt-get install mariadb-client")
    words, variables = connection.client.settings_to_cmd_args_env(connection.settings_dict, [])
    database_options: Mapping[str, Any] = connection.settings_dict["OPTIONS"]
    if socket := database_options.get("unix_socket"):
        options = [f"--socket={socket}", *options]
    if mode := str(database_options.get("ssl_mode") or ""):
        # MySQL's tools know the first option, MariaDB's the others.
        options = [
            f"--loose-ssl-mode={mode}", f"--loose-ssl={int(mode != 'DISABLED')}",
            f"--loose-ssl-verify-server-cert={int(mode.startswith('VERIFY_'))}", *options,
        ]  # fmt: skip
    *address, database = words[1:]
    command = [str(program), "--no-defaults", *address, *options, database]
    return command, {**os.environ, **(variables or {})}


def _dump(connection: BaseDatabaseWrapper, folder: Path) -> dict[str, Any]:
    """The description of a database for the manifest."""
    recorder = MigrationRecorder(connection)
    migrations = sorted(map(".".join, recorder.applied_migrations()))
    if not migrations:
        raise BackupRefused(f"The database {connection.alias} has no tables: nothing to back up.")
    engine = engines.of_connection(connection)
    path = folder / f"{connection.alias}.{'sql' if engine.is_server else 'sqlite3'}"
    for number in range(1, _TRIES + 1):
        required_names = migration_stages.tables_of_migrations(connection)
        required_names |= set(connection.introspection.table_names())
        try:
            if engine.is_server:
                table_names = _dump_server(connection, engine.dump_programs, path)
            else:
                table_names = _copy_file(connection, path)
            if missing := sorted(required_names - table_names):
                raise DumpIncomplete(
                    f"The dump of the database {connection.alias} lacks tables "
                    f"({migration_stages.enumerate_tables(missing)}): the server was altering them."
                )
            break
        except DumpIncomplete:
            if number == _TRIES:
                raise
    return {
        "is_file": not engine.is_server, "file": path.name, "tables": sorted(table_names),
        "migrations": migrations,
    }  # fmt: skip


def _copy_file(connection: Any, path: Path) -> set[str]:
    """Copy a SQLite database as of one moment, with its write-ahead log, but without the rows of
    sessions. Returns the tables."""
    path.unlink(missing_ok=True)
    connection.ensure_connection()
    connect = connection.Database.connect
    with connection.wrap_database_errors, closing(connect(path, isolation_level=None)) as copy:
        connection.connection.backup(copy)
        if (answer := copy.execute("PRAGMA quick_check").fetchone()[0]) != "ok":
            raise DumpIncomplete(f"The copy of {connection.alias} is damaged: {answer}")
        table_names = {name for (name,) in copy.execute(_FILE_TABLES)}
        copy.execute("PRAGMA journal_mode = DELETE")  # of the copy: no log beside it
        for name in SESSION_TABLES & table_names:
            copy.execute(f"DELETE FROM {name}")  # noqa: S608 - a name of ours
        copy.execute("VACUUM")  # free pages still have deleted rows
        return table_names


def _dump_server(connection: Any, programs: Sequence[str], path: Path) -> set[str]:
    """Dump a database without its triggers, which `migrate` makes for its own user, and without the
    rows of sessions. Returns the tables that the dump has completely."""
    command, environment = client_command(connection, programs, [*_DUMP_OPTIONS])
    complete_tables, table, line = set(), "", b""
    with path.open("w+b") as file:
        code, reason = run_tool(
            command, environment, lambda: os.fstat(file.fileno()).st_size, stdout=file
        )
        file.seek(0)
        for line in file:
            if match := _TABLE.match(line):
                table = match[1].decode()
            elif line == b"UNLOCK TABLES;\n":  # after the last row
                complete_tables.add(table)
            # MariaDB's newer tools write each row on a line of its own. No option that leaves out
            # the rows of one table is known to the tools of both servers.
            elif table in SESSION_TABLES and line.startswith((b"INSERT INTO ", b"(")):
                file.seek(-len(line), os.SEEK_CUR)
                file.write(b" " * (len(line) - 1) + b"\n")
    if code == _WRITE_FAILED:
        raise BackupRefused(f"The dump of {connection.alias} could not be written: {reason}")
    # Error 1412: a partition was made or dropped meanwhile.
    if code or not line.startswith(_END):
        raise DumpIncomplete(f"The dump of {connection.alias} ended early: {reason or code}")
    return complete_tables


def _redis_cli() -> Path:
    program = find_program("redis-cli", "valkey-cli")
    if program is None:
        raise BackupRefused("redis-cli is not installed: apt-get install redis-tools")
    return program


def _copy_redis(role: RedisRole, folder: Path) -> None:
    """Copy the data of a Redis as of one moment, as files from which a new server with an
    append-only file starts."""
    parts = urlsplit(role.url)
    if parts.scheme == "unix":
        words = ["-s", unquote(parts.path)]
    else:
        words = ["-h", parts.hostname or "localhost", "-p", str(parts.port or 6379)]
    if parts.scheme == "rediss":
        options = parse_qs(parts.query)
        if certificate := options.get("ssl_certfile"):
            options.setdefault("ssl_keyfile", certificate)  # one file may have both
        words += ["--tls", *(["--insecure"] if options.get("ssl_cert_reqs") == ["none"] else [])]
        for name in _REDIS_FILES.keys() & options.keys():
            words += [_REDIS_FILES[name], options[name][0]]
    if parts.username:
        words += ["--user", unquote(parts.username)]
    environment = dict(os.environ)
    if parts.password:
        environment["REDISCLI_AUTH"] = unquote(parts.password)
    # The append-only file is a folder with a list of its parts since Redis 7.
    is_folder = int(str(role.client().info("server")["redis_version"]).partition(".")[0]) >= 7
    base = "appendonlydir/appendonly.aof.1.base.rdb" if is_folder else "appendonly.aof"
    private_directory((folder / base).parent)
    (folder / base).touch()
    code, reason = run_tool(
        [str(_redis_cli()), *words, "--rdb", str(folder / base)], environment,
        lambda: (folder / base).stat().st_size, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    if code:
        raise DumpIncomplete(f"The copy of {role.variable} failed: {reason[-300:]}")
    if is_folder:
        listing = f"file {Path(base).name} seq 1 type b\n"
        (folder / "appendonlydir" / "appendonly.aof.manifest").write_text(listing, encoding="utf-8")
