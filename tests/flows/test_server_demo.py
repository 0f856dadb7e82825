"""The demo on the server of TEST_DATABASE: a walk through each flow, from the call to the account
of every message. On MariaDB it runs under the full load."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.harness.mariadb import MariaDb
from tests.cluster import ROOT
from tests.servers import DATABASE

MESSAGES = 1_000  # of each flow: fewer are too few for the demo

pytestmark = [] if DATABASE == "mysql" else [pytest.mark.full]


def test_every_message_of_every_flow_is_accounted_for(mariadb: MariaDb, tmp_path: Path) -> None:
    words = ["--exit", "--json", "--messages", str(MESSAGES), "--database", mariadb.create("demo")]
    done = subprocess.run(
        [sys.executable, "manage.py", "demo", *words], cwd=ROOT, timeout=900, check=False,
        env={**os.environ, "STATE_DIR": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    flows = json.loads(done.stdout)["flows"]
    assert {name: figures["lost"] for name, figures in flows.items()} == {
        name: 0 for name in ("notify", "sms", "feed", "crmsync")
    }
    tables = mariadb.execute("SELECT COUNT(*) FROM demo.biz_msg")
    assert tables > ((MESSAGES,),), "it has used the database"
