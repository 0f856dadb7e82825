"""Several processes of a daemon under one command, as real processes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.cluster import ROOT

# Programs begin their turns when the database has its tables.
pytestmark = pytest.mark.django_db(transaction=True)

# A line is one write: with PYTHONUNBUFFERED `print` writes its parts one by one, and two processes
# share the pipe.
PROGRAM = """
import os, sys, time, django
django.setup()
from msgplatform.core.daemons.command import DaemonCommand
from msgplatform.core.daemons.daemon import Worker

class Probe(Worker):
    role = "probe"
    said = False
    def turn(self):
        if not self.said:
            print(f"turn {os.getpid()}\\n", end="", flush=True)
        self.said = True
        return False
    def drain(self, deadline):
        time.sleep(1.5)  # longer than the parent takes to pass the signal on
        print(f"drained {os.getpid()}\\n", end="", flush=True)

class Command(DaemonCommand):
    def worker(self, **options):
        return Probe()

Command().run_from_argv(sys.argv)
"""


@pytest.mark.parametrize(
    "option",
    [
        pytest.param("--processes=2", marks=pytest.mark.full),
        pytest.param("--process=2", marks=pytest.mark.full),
        "--proc 2",
    ],
)
def test_ctrl_c_lets_each_of_them_finish(tmp_path: Path, option: str) -> None:
    """A terminal sends its signal to the whole group. However the option is written, only the
    parent starts others."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    parent = subprocess.Popen(
        [sys.executable, program, "run_probe", *option.split()],
        stdout=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )  # fmt: skip
    try:
        assert parent.stdout
        begun = {parent.stdout.readline() for _ in range(2)}
        running = {each.pid for each in psutil.Process(parent.pid).children(recursive=True)}
        assert begun == {f"turn {pid}\n" for pid in running}
        os.killpg(parent.pid, signal.SIGINT)
        output, _ = parent.communicate(timeout=180)
    finally:
        parent.kill()
    assert set(output.splitlines()) == {f"drained {pid}" for pid in running}
    assert parent.returncode == 0


@pytest.mark.parametrize(
    "words",
    ["run_maker --drain-seconds=-1", "run_maker --drain-seconds=nan", "run_agent --batch=0"],
)
def test_a_wrong_option_ends_the_parent_too(words: str) -> None:
    """As it ends a single process, instead of being tried for ever."""
    ended = subprocess.run(
        [sys.executable, "manage.py", *words.split(), "--processes=2"], cwd=ROOT,
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    assert f"CommandError: {words.split()[1].partition('=')[0]} must be" in ended.stderr
    assert "Traceback" not in ended.stderr
