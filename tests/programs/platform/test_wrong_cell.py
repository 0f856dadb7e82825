"""Programs whose CELL is not that of the database do not start, and say both."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from msgplatform.core.cells import Cell
from msgplatform.core.data import cell_record
from tests.cluster import ROOT

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis", "sms_redis"),
]
WEB = [
    sys.executable, "-c", "import msgplatform.web.asgi",
]  # fmt: skip
_SECONDS = 180


def daemon(name: str) -> list[str]:
    return [sys.executable, "manage.py", name]


@pytest.mark.parametrize(
    "program",
    [WEB, *map(daemon, ("run_maker", "run_sender", "run_marker", "run_sms_receiver",
                        "run_feed_dispatcher", "run_sync_handler", "run_bulk"))],
    ids=lambda program: program[-1],
)  # fmt: skip
def test_a_program_of_another_cell_ends_with_the_sentence(
    program: list[str], tmp_path: Path
) -> None:
    cell_record.write(Cell(3, 16))
    environment = {**os.environ, "CELL": "4/16", "STATE_DIR": str(tmp_path)}
    ended = subprocess.run(
        program, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=_SECONDS,
        check=False,
    )  # fmt: skip
    assert ended.returncode != 0
    assert "The database belongs to cell 3/16, but this program has CELL=4/16." in ended.stderr
    assert "run manage.py set_cell" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("text", ["16/16", "3/12", "a/b", "0/512"])
def test_a_wrong_setting_is_one_sentence(text: str, tmp_path: Path) -> None:
    environment = {**os.environ, "CELL": text, "STATE_DIR": str(tmp_path)}
    ended = subprocess.run(
        daemon("run_maker"), cwd=ROOT, env=environment, capture_output=True, text=True,
        timeout=_SECONDS, check=False,
    )  # fmt: skip
    assert ended.returncode != 0
    assert f"CELL='{text}' is not usable" in ended.stderr
    assert "Set CELL to number/cells, such as 3/16" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_new_database_belongs_to_the_cell(tmp_path: Path) -> None:
    environment = {
        **os.environ, "CELL": "3/16", "STATE_DIR": str(tmp_path),
        "DATABASE_URL": f"sqlite:///{tmp_path / 'new.db'}",
    }  # fmt: skip
    for command in (["migrate", "--verbosity=0"], ["set_cell"]):
        ended = subprocess.run(
            [sys.executable, "manage.py", *command], cwd=ROOT, env=environment,
            capture_output=True, text=True, timeout=_SECONDS, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
    assert "belongs to cell 3/16 already" in ended.stdout
