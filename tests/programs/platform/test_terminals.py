"""Commands on terminals and pipes that are not UTF-8, or that nobody reads: no command ends with a
traceback, and a file is UTF-8 whatever the terminal is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

from bench.harness import migrated
from tests.cluster import MIGRATE, ROOT
from tests.program_host import run_program

TITLE = "北京 Läden 😀"
TERMINALS = [
    pytest.param({"PYTHONIOENCODING": "ascii"}, marks=pytest.mark.full),
    pytest.param({"PYTHONIOENCODING": "cp1252"}, marks=pytest.mark.full),
    {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
]
each_terminal = pytest.mark.parametrize("terminal", TERMINALS, ids=lambda each: next(iter(each)))


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """A platform with a business system; no server runs."""
    folder = tmp_path_factory.mktemp("terminals")
    variables = {
        **os.environ, "DATABASE_URL": f"sqlite:///{folder / 'platform.db'}",
        "REDIS_URL": f"unix://{folder}/none", "SMS_REDIS_URL": f"unix://{folder}/none-sms",
        "STATE_DIR": str(folder),
    }  # fmt: skip

    def run(code: str) -> None:
        code = f"import django; django.setup()\n{code}"
        run_program([sys.executable, "-c", code], variables).check_returncode()

    migrated.fill(variables["DATABASE_URL"], lambda: run(MIGRATE), "everything")
    run(f"from msgplatform.models import Biz; Biz.objects.create(name='shop', title={TITLE!r})")
    return variables


@each_terminal
def test_a_command_shows_escapes(
    terminal: Mapping[str, str], environment: Mapping[str, str]
) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "doctor"], cwd=ROOT, env={**environment, **terminal},
        capture_output=True, check=False, timeout=300,
    )  # fmt: skip
    assert b"Traceback" not in done.stderr, done.stderr.decode(errors="replace")
    assert b"\\u2192" in done.stdout, "an arrow before each repair"


@each_terminal
def test_a_file_is_utf_8(terminal: Mapping[str, str], environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "export"], cwd=ROOT, env={**environment, **terminal},
        capture_output=True, check=False, timeout=300,
    )  # fmt: skip
    assert TITLE in done.stdout.decode(), done.stderr.decode(errors="replace")


def test_nobody_reads_the_pipe(environment: Mapping[str, str]) -> None:
    """Such as `manage.py doctor | head`."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "manage.py", "doctor"], cwd=ROOT, env=environment, stdout=writer,
        stderr=subprocess.PIPE, check=False, timeout=300,
    )  # fmt: skip
    os.close(writer)
    assert (done.returncode, b"Traceback" in done.stderr) == (1, False), done.stderr.decode()
    assert b"BrokenPipe" not in done.stderr
