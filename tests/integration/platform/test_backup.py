"""A backup is restored into an empty database; one that is damaged, or does not fit, is refused."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import override_settings

from msgplatform.core.data import engines
from msgplatform.core.secrets import encryption
from msgplatform.models import Biz
from msgplatform.operation.backup import backup, restore
from tests import servers as own_servers
from tests.program_host import run_program
from tests.servers import Servers

pytestmark = [
    # The load is reached by the command only.
    pytest.mark.both_databases("msgplatform/operation/backup/restore.py"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis", "sms_redis"),
]
NAMES = """
import django
django.setup()
from msgplatform.models import Biz
print(",".join(Biz.objects.values_list("name", flat=True)))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Biz.objects.create(name="shop")
    if engines.of() is engines.SQLITE:  # its statistics are tables that no dump has
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
    folder = tmp_path / "backup"
    backup.make(folder, None, lambda text: None)
    return folder


def empty_database(servers: Servers, tmp_path: Path) -> str:
    if own_servers.DATABASE == "sqlite":
        return f"sqlite:///{tmp_path / 'new.db'}"
    return servers.mariadb().create("restored")


def run(url: str, state: Path, *words: str) -> tuple[int, str]:
    environment = {**os.environ, "DATABASE_URL": url, "STATE_DIR": str(state)}
    done = run_program([sys.executable, *words], environment, 600)
    return done.returncode, done.stdout + done.stderr


def test_it_comes_back(folder: Path, servers: Servers, tmp_path: Path) -> None:
    assert folder.stat().st_mode & 0o777 == 0o700
    url = empty_database(servers, tmp_path)
    state = tmp_path / "state"
    code, said = run(url, state, "manage.py", "restore", str(folder))
    assert code == 0, said
    for step in ("loaded", "migrated", "sync_recover --since", "emptied", "sms_recover"):
        assert step in said
    assert said.index("sync_recover") < said.index("emptied") < said.index("sms_recover")
    assert run(url, state, "-c", NAMES) == (0, "shop\n")
    code, said = run(url, state, "manage.py", "restore", str(folder))
    assert (code, "is not empty" in said) == (1, True), said


def test_the_manifest_names_every_table(folder: Path) -> None:
    manifest = json.loads((folder / backup.MANIFEST).read_text())
    (database,) = manifest["databases"].values()
    assert set(connection.introspection.table_names()) <= set(database["tables"])
    assert {"redis-sms", database["file"].split("/")[0]} <= {
        name.split("/")[0] for name in manifest["files"]
    }


def damage(folder: Path, manifest: dict[str, Any]) -> None:
    (database,) = manifest["databases"].values()
    path = folder / database["file"]
    path.write_bytes(path.read_bytes()[:-10])


def be_newer(folder: Path, manifest: dict[str, Any]) -> None:
    manifest["databases"]["default"]["migrations"].append("msgplatform.9999_future")
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
        (end_early, "is no whole backup"), (be_newer, "is not empty"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(folder: Path, change: Any, said: str) -> None:
    change(folder, json.loads((folder / backup.MANIFEST).read_text()))
    with pytest.raises(backup.BackupRefused, match=said):
        restore.restore(folder, lambda text: None)
    assert Biz.objects.get().name == "shop"


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
