"""A MySQL server of its own, beside the class for MariaDB, whose client programs speak to it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bench.harness.mariadb import AS_ROOT, MariaDb, unpacked_server
from msgplatform.core.servers.private_server import ServerFailed, ServerMissing, find_program

# Options that have another name in MySQL.
_NAMES = {"innodb_log_file_size": "innodb_redo_log_capacity"}


class MySql(MariaDb):
    """MYSQL_ROOT names a folder into which the packages of a MySQL server were unpacked
    (`scripts/mysql.sh`); without it, `mysqld` of PATH runs."""

    name = "mysql"

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
            [*_program(), *AS_ROOT, "--initialize-insecure", f"--datadir={folder}"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if result.returncode:
            raise ServerFailed(f"mysqld --initialize-insecure failed:\n{result.stderr[-2000:]}")


def _program() -> Sequence[str]:
    root = os.environ.get("MYSQL_ROOT", "")
    if not root:
        program = find_program("mysqld")
        # Debian's MariaDB has a link of this name.
        if program is None or program.resolve().name == "mariadbd":
            raise ServerMissing("MySQL was not found. Run scripts/mysql.sh, and set MYSQL_ROOT.")
        return [str(program), "--no-defaults"]
    return unpacked_server(Path(root), "mysqld", "mysql")
