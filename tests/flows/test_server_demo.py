"""The demo on a server: a walk through each flow, from the call to the account of every message.
MySQL is set up as strictly as a managed service may have it. On MariaDB it runs under the full
load."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.harness.mariadb import MariaDb
from bench.harness.mysql import MySql
from tests.cluster import ROOT
from tests.servers import DATABASE

MESSAGES = 200  # of Notify, fewer of the other flows: most of the cost is starting programs
STRICT_OPTIONS: dict[str, str | int] = {
    "sql_require_primary_key": 1,
    "sql_generate_invisible_primary_key": 1,
    "lower_case_table_names": 1,
    "sql_mode": "ANSI,TRADITIONAL,ONLY_FULL_GROUP_BY,PIPES_AS_CONCAT",
    "transaction_isolation": "REPEATABLE-READ",
    "collation_server": "utf8mb4_0900_ai_ci",
    "default_time_zone": "+08:00",
    "log_bin": "binlog",
    "log_bin_trust_function_creators": 1,
    "innodb_flush_log_at_trx_commit": 2,
}
# Neither SUPER nor PROCESS, nor anything else on the server as a whole.
PRIVILEGES = (
    "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, REFERENCES, LOCK TABLES, TRIGGER"
)

pytestmark = [] if DATABASE == "mysql" else [pytest.mark.full]


class StrictMySql(MySql):
    name = "mysql-strict"  # its tables are its own, as they depend on the case of letters

    initial_options = ("--lower-case-table-names=1",)


@pytest.fixture
def server() -> Iterator[MariaDb]:
    folder = Path(tempfile.mkdtemp(prefix="mp-demo-"))  # a socket's path has only 107 bytes
    is_mysql = DATABASE == "mysql"
    server = StrictMySql(folder / "s", STRICT_OPTIONS) if is_mysql else MariaDb(folder / "s")
    server.start()
    server.create("demo")
    server.execute("CREATE USER app@'%' IDENTIFIED BY 'a secret'")
    if is_mysql:
        server.execute("ALTER USER app@'%' REQUIRE SSL")
    server.execute(f"GRANT {PRIVILEGES} ON demo.* TO app@'%'")
    yield server
    server.kill()
    shutil.rmtree(folder, ignore_errors=True)


def test_every_message_of_every_flow_is_accounted_for(server: MariaDb, tmp_path: Path) -> None:
    url = f"mysql://app:a%20secret@127.0.0.1:{server.port}/demo"
    url += "?ssl_mode=REQUIRED" * (DATABASE == "mysql")
    words = ["--exit", "--json", "--messages", str(MESSAGES), "--database", url]
    done = subprocess.run(
        [sys.executable, "manage.py", "demo", *words], cwd=ROOT, timeout=900, check=False,
        env={**os.environ, "STATE_DIR": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout, done.stderr  # with so few messages its exit code is 1
    account = json.loads(done.stdout)
    assert account["errors"] == []
    assert len(account["flows"]) == 4
    for figures in account["flows"].values():
        assert figures["lost"] == 0
        assert figures["accepted"] >= MESSAGES // 4
    ((messages,),) = server.execute("SELECT COUNT(*) FROM demo.biz_msg")
    assert messages >= MESSAGES
