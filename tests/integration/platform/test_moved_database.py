"""From one kind of server to the other and back, by the lines of docs/backup.md: the books are the
same. Both servers are needed, so it runs where MySQL is tested (scripts/run_tests.py)."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.harness.mariadb import MariaDb
from bench.harness.mysql import MySql
from tests.cluster import ROOT
from tests.servers import DATABASE
from tests.support import everything

_COMMANDS = re.compile(
    r"^## Between MariaDB and MySQL\n.*?^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL
)
_HAS_ROWS = 40  # tables at least
Books = dict[str, list[dict[str, Any]]]


@pytest.fixture
def servers_of_both(mariadb: MariaDb) -> Iterator[tuple[MySql, MariaDb]]:
    assert isinstance(mariadb, MySql)
    folder = Path(tempfile.mkdtemp(prefix="mp-moved-"))  # a socket's path has only 107 bytes
    with MariaDb(folder / "s", {"innodb_flush_log_at_trx_commit": 2}) as other:
        yield mariadb, other
    shutil.rmtree(folder, ignore_errors=True)


def move(
    old: MariaDb, old_name: str, new: MariaDb, new_name: str, folder: Path
) -> None:  # fmt: skip
    new.execute(f"CREATE DATABASE {new_name} CHARACTER SET utf8mb4")
    (manage := folder / "manage.py").write_text(
        f'#!/bin/sh\ncd {ROOT}\nexec {sys.executable} manage.py "$@"\n'
    )
    manage.chmod(0o755)
    match = _COMMANDS.search((ROOT / "docs" / "backup.md").read_text())
    assert match
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", match[1]], cwd=folder, timeout=600, check=False,
        capture_output=True, text=True,
        env={
            **os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "STATE_DIR": str(folder),
            "DATABASE_URL": new.url(new_name),
            "OLD": f"--no-defaults -uroot --socket={old.socket} {old_name}",
            "NEW": f"--no-defaults -uroot --socket={new.socket} {new_name}",
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def books(server: MariaDb, name: str, json_columns: set[tuple[str, str]]) -> Books:
    """Every row of every table but those of Django's migrations, whose times differ."""
    content: Books = {}
    connection = server.connect(name)
    try:
        with connection.cursor() as cursor:
            cursor.execute("SHOW FULL TABLES WHERE Table_type = 'BASE TABLE'")
            for table, _ in cursor.fetchall():
                cursor.execute(f"SELECT * FROM `{table}`")
                names = [column[0] for column in cursor.description]
                rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
                for row in rows:
                    for column in names:
                        if (table, column) in json_columns and row[column] is not None:
                            row[column] = json.loads(row[column])
                content[table] = sorted(rows, key=repr)
    finally:
        connection.close()
    return content


if DATABASE == "mysql":

    @pytest.mark.django_db(transaction=True)
    @pytest.mark.usefixtures("work_redis", "sms_redis")
    def test_the_books_are_the_same_after_both_ways(
        servers_of_both: tuple[MySql, MariaDb], tmp_path: Path
    ) -> None:
        mysql, mariadb = servers_of_both
        everything.make(tmp_path)
        rows = mysql.execute(
            "SELECT table_name, column_name FROM information_schema.columns "
            "WHERE table_schema = 'msgplatform' AND data_type = 'json'"
        )
        json_columns = {(str(table), str(column)) for table, column in rows}
        before = books(mysql, "msgplatform", json_columns)
        assert len([table for table in before.values() if table]) >= _HAS_ROWS
        move(mysql, "msgplatform", mariadb, "moved", tmp_path)
        assert books(mariadb, "moved", json_columns) == before
        triggers = "SELECT COUNT(*) FROM information_schema.triggers WHERE trigger_schema = '{}'"
        assert mariadb.execute(triggers.format("moved")) == ((2,),)
        move(mariadb, "moved", mysql, "moved_back", tmp_path)
        assert books(mysql, "moved_back", json_columns) == before
        assert mysql.execute(triggers.format("moved_back")) == ((2,),)
        mysql.execute("DROP DATABASE moved_back")
