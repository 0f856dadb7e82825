"""Programs whose CELL is not that of the database do not start, and say both."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import get_commands, load_command_class

from msgplatform.core.cells import Cell
from msgplatform.core.daemons.command import DaemonCommand
from msgplatform.core.data import cell_record
from tests.cluster import ROOT
from tests.program_host import run_program

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis", "sms_redis"),
]
FULL = bool(os.environ.get("MSGPLATFORM_FULL_LOAD"))
WEB = [
    sys.executable, "-c", "import msgplatform.doors.web.asgi",
]  # fmt: skip
# All run the same code before their work, which the test below shows; a few are started.
DAEMONS = ["run_maker", "run_sms_receiver"]
if FULL:
    DAEMONS += ["run_sender", "run_marker", "run_feed_dispatcher", "run_sync_handler", "run_bulk"]
_SECONDS = 180


def daemon(name: str) -> list[str]:
    return [sys.executable, "manage.py", name]


@pytest.mark.parametrize("program", [WEB, *map(daemon, DAEMONS)], ids=lambda program: program[-1])
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


def test_every_daemon_looks_before_its_work() -> None:
    """The look at the cell is in `DaemonCommand.handle`, and no daemon has one of its own."""
    commands = get_commands()
    programs = [name for name in commands if name.startswith("run_")]
    classes = {name: type(load_command_class(commands[name], name)) for name in programs}
    others = {name for name, kind in classes.items() if kind.handle is not DaemonCommand.handle}
    assert others == {"run_smg_simulator"}, "a demo's gateway, which has no database"


@pytest.mark.parametrize("text", ["3/12", *(["16/16", "a/b", "0/512"] if FULL else [])])
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
        ended = run_program([sys.executable, "manage.py", *command], environment)
        assert ended.returncode == 0, ended.stderr
    assert "belongs to cell 3/16 already" in ended.stdout
