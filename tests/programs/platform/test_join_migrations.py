"""A database that the earlier migrations made (tests/vectors/before_joining.*) goes on here."""

from __future__ import annotations

import gzip
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from bench.harness.mariadb import MariaDb

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("kind", ["sqlite", "mariadb"])
def test_its_migrations_are_those_of_today(kind: str, tmp_path: Path, mariadb: MariaDb) -> None:
    dump = gzip.decompress((ROOT / f"tests/vectors/before_joining.{kind}.sql.gz").read_bytes())
    url = mariadb.create("joined") if kind == "mariadb" else f"sqlite:///{tmp_path}/joined.db"

    def load(text: bytes) -> None:
        if kind == "mariadb":
            client = ("mariadb", f"--socket={mariadb.socket}", "--user=root", "joined")
            subprocess.run(client, input=text, check=True)
            return
        with closing(sqlite3.connect(tmp_path / "joined.db")) as connection:
            connection.executescript(text.decode())

    def run(*words: str) -> tuple[int, str]:
        environment = {**os.environ, "DATABASE_URL": url, "STATE_DIR": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, *words], cwd=ROOT, env=environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    load(dump)
    load(b"DELETE FROM django_migrations WHERE name = '0006_person_data'")
    code, output = run("scripts/join_migrations.py")
    assert (code, "lacks notify.0006_person_data" in output) == (1, True)
    load(
        b"INSERT INTO django_migrations (app, name, applied) "
        b"VALUES ('notify', '0006_person_data', '2026-11-29 00:00:00')"
    )
    code, output = run("manage.py", "migrate")
    assert (code, "applied before its dependency" in output) == (1, True)
    for _ in range(2):  # a second run does nothing
        assert run("scripts/join_migrations.py")[0] == 0
    assert run("manage.py", "migrate", "--check")[0] == 0
