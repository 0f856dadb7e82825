"""A MariaDB server of its own, for tests and benchmarks."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bench.harness import migrated
from msgplatform.core.servers.private_server import (
    PrivateServer,
    ServerFailed,
    ServerMissing,
    find_program,
    free_port,
)

# mariadbd refuses to run as root unless it is told to.
AS_ROOT = ["--user=root"] if os.geteuid() == 0 else []


class MariaDb(PrivateServer):
    """A MariaDB for tests and benchmarks: a socket and a port of 127.0.0.1, root without password.

    MARIADB_ROOT names a folder into which the packages of another server were unpacked
    (`scripts/mysql.sh`); without it, the `mariadbd` of this machine runs.
    `options` are the server's own, for example {"innodb_flush_log_at_trx_commit": 2}. Its socket
    is in `directory`, so keep that path short. Needs the package mysqlclient.
    """

    name = "mariadb"
    start_seconds = 300.0  # a busy machine starts slowly

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
            "max_recursive_iterations": 4294967295,  # for `numbers`
            **(options or {}),
        }

    @property
    def argv(self) -> list[str]:
        return [
            *(*_server(), *AS_ROOT),
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
        # A folder that an interrupted installation left behind cannot be finished.
        shutil.rmtree(self.data, ignore_errors=True)
        new_folder = self.data.with_suffix(".new")
        shutil.rmtree(new_folder, ignore_errors=True)
        migrated.fill_folder(new_folder, self.make_data, self.name)
        new_folder.rename(self.data)

    def make_data(self, folder: Path) -> None:
        """Make the server's own tables in a new folder. Raises ServerFailed."""
        if root := os.environ.get("MARIADB_ROOT"):
            _bootstrap(Path(root), folder)
            return
        program = _mariadb_program("mariadb-install-db", "mysql_install_db")
        result = subprocess.run(
            [
                *(program, "--no-defaults", *AS_ROOT, f"--datadir={folder}"),
                *("--auth-root-authentication-method=normal", "--skip-test-db"),
            ],
            env={**os.environ, "TMPDIR": str(self.directory)},  # as `--tmpdir` above
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode:
            raise ServerFailed(
                f"mariadb-install-db failed:\n{(result.stdout + result.stderr)[-2000:]}"
            )

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

    def copy(self, source: str, name: str) -> None:
        """Make a database of this name with the tables, rows and triggers of `source`."""
        self.create(name)
        words = ["--no-defaults", f"--socket={self.socket}", "--user=root"]
        dump = subprocess.run(
            [_mariadb_program("mariadb-dump", "mysqldump"), *words, "--single-transaction", source],
            stdout=subprocess.PIPE, check=True,
        )  # fmt: skip
        client = _mariadb_program("mariadb", "mysql")
        subprocess.run([client, *words, name], input=dump.stdout, check=True)

    def url(self, name: str) -> str:
        """The DATABASE_URL of a database, over the socket: no other program can take that."""
        return f"mysql://root@localhost/{name}?unix_socket={quote(str(self.socket))}"


def numbers(first: int, last: int) -> str:
    """The table of these whole numbers, in a column `seq`, for FROM; give it a name. MySQL has no
    sequence engine."""
    return (
        f"(WITH RECURSIVE numbers (seq) AS (SELECT {first} UNION ALL SELECT seq + 1 "
        f"FROM numbers WHERE seq < {last}) SELECT seq FROM numbers)"
    )


def digest(expression: str) -> str:
    """The expression for 32 hexadecimal digits that follow from another one. MySQL 9.6 and later
    have no MD5() of their own."""
    return f"LEFT(SHA2({expression}, 256), 32)"


def unpacked_server(root: Path, program: str, share: str) -> list[str]:
    """The beginning of a command line for a server whose packages were unpacked into `root`. It is
    started by its own loader: it may need a newer C library than this machine has."""
    loader = next(root.glob("usr/lib/*-linux-gnu/ld-linux-*.so.*"))
    libraries = f"{loader.parent}:{root}/usr/lib/mysql/private"
    return [
        str(loader), "--library-path", libraries, f"{root}/usr/sbin/{program}", "--no-defaults",
        f"--lc-messages-dir={root}/usr/share/{share}", f"--plugin-dir={root}/usr/lib/mysql/plugin",
    ]  # fmt: skip


def _server() -> list[str]:
    if root := os.environ.get("MARIADB_ROOT"):
        return [*unpacked_server(Path(root), "mariadbd", "mariadb"),
                f"--character-sets-dir={root}/usr/share/mariadb/charsets"]  # fmt: skip
    return [_mariadb_program("mariadbd", "mysqld"), "--no-defaults"]


def _bootstrap(root: Path, folder: Path) -> None:
    """What mariadb-install-db does, which finds no server of another C library."""
    (folder / "mysql").mkdir(parents=True)
    names = ("mariadb_system_tables", "mariadb_performance_tables", "mariadb_system_tables_data",
             "maria_add_gis_sp_bootstrap", "mariadb_sys_schema")  # fmt: skip
    scripts = [(root / "usr/share/mariadb" / f"{name}.sql").read_text() for name in names]
    start = "USE mysql;\nSET @auth_root_socket = NULL, @skip_auth_anonymous = 1;\n"
    result = subprocess.run(
        [*_server(), *AS_ROOT, "--bootstrap", f"--datadir={folder}", "--log-warnings=0"],
        input=start + "\n".join(scripts), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if result.returncode:
        raise ServerFailed(f"mariadbd --bootstrap failed:\n{result.stderr[-2000:]}")


def _mariadb_program(*names: str) -> str:
    program = find_program(*names)
    if program is None:
        raise ServerMissing(f"{names[0]} was not found. Install mariadb-server.")
    return str(program)
