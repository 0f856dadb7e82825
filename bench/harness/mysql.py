"""A MySQL server of its own, beside the class for MariaDB, whose client programs speak to it."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.harness.mariadb import AS_ROOT, MariaDb, unpacked_server
from msgplatform.core.servers.private_server import ServerFailed, ServerMissing, find_program

_UNPACKED = Path(__file__).resolve().parents[2] / "var" / "mysql" / "root"
# Options that have another name in MySQL.
_NAMES = {
    "innodb_log_file_size": "innodb_redo_log_capacity",
    "max_recursive_iterations": "cte_max_recursion_depth",
}


class MySql(MariaDb):
    """The server that `scripts/mysql.sh` unpacks into `var/mysql`, or into the folder that
    MYSQL_ROOT names; without one, `mysqld` of PATH."""

    name = "mysql"
    initial_options: Sequence[str] = ()  # that the server's own tables depend on

    @property
    def argv(self) -> list[str]:
        options = (
            f"--{_NAMES.get(name, name).replace('_', '-')}={value}"
            for name, value in self.options.items()
        )
        return [
            *_program(), *AS_ROOT, "--mysqlx=OFF", "--secure-file-priv=NULL", "--disable-log-bin",
            f"--pid-file={self.directory / 'pid'}", f"--datadir={self.data}",
            f"--socket={self.socket}", f"--tmpdir={self.directory}", f"--port={self.port}",
            "--bind-address=127.0.0.1", "--skip-name-resolve", *options,
        ]  # fmt: skip

    def make_data(self, folder: Path) -> None:
        result = subprocess.run(
            [*_program(), *AS_ROOT, "--initialize-insecure", f"--datadir={folder}",
             *self.initial_options],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if result.returncode:
            raise ServerFailed(f"mysqld --initialize-insecure failed:\n{result.stderr[-2000:]}")
        (folder / "auto.cnf").unlink()  # the server's identity, which no copy may have


# Kinds of servers, by the name that TEST_DATABASE and `bench --database` have for them.
SERVERS: Mapping[str, type[MariaDb]] = {"mariadb": MariaDb, "mysql": MySql}


def _program() -> Sequence[str]:
    root = Path(os.environ.get("MYSQL_ROOT") or _UNPACKED)
    if root.is_dir():
        return unpacked_server(root, "mysqld", "mysql")
    program = find_program("mysqld")
    # Debian's MariaDB has a link of this name.
    if program is None or program.resolve().name == "mariadbd":
        raise ServerMissing("MySQL was not found. Run scripts/mysql.sh.")
    return [str(program), "--no-defaults"]
