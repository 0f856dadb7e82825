"""Commands on terminals and pipes that are not UTF-8, or that nobody reads: no command ends with a
traceback, and a file is UTF-8 whatever the terminal is."""

import contextlib
import os
import pty
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from bench.harness import migrated
from tests.cluster import MIGRATE, ROOT
from tests.program_host import run_program

TITLE = "北京 Läden 😀"
# It changes the direction of what a terminal shows after it.
TURNED = "yes\u202eon"
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
    example = {"note": TURNED}
    run("from notify.models import EventType\n"
        f"EventType.objects.create(name='order.turned', example={example!r})")  # fmt: skip
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
    assert TURNED in done.stdout.decode(), "unchanged in a file"


def shown(environment: Mapping[str, str], *words: str, typed: bytes = b"") -> str:
    """All that a terminal shows of a command."""
    terminal, program_side = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "manage.py", *words], cwd=ROOT, env=environment, stdin=program_side,
        stdout=program_side, stderr=program_side,
    )  # fmt: skip
    os.close(program_side)
    os.write(terminal, typed)
    text = b""
    with contextlib.suppress(OSError):  # the program has ended
        while piece := os.read(terminal, 65536):
            text += piece
    os.close(terminal)
    process.wait(300)
    return text.decode()


@pytest.mark.parametrize("command", ["export", "asyncapi", "apply"])
def test_a_terminal_gets_escapes_of_what_would_turn_it(
    command: str, environment: Mapping[str, str], tmp_path: Path
) -> None:
    words = [command]
    if command == "apply":
        file = tmp_path / "platform.yaml"
        file.write_text(f'event-types:\n  order.more:\n    example: {{note: "{TURNED}"}}\n')
        words += ["--dry-run", str(file)]
    text = shown(environment, *words)
    assert r"yes\u202eon" in text
    assert "\u202e" not in text


def test_ctrl_d_is_a_no(environment: Mapping[str, str], tmp_path: Path) -> None:
    file = tmp_path / "platform.yaml"
    file.write_text("event-types: {}\n")
    text = shown(environment, "apply", "--prune", str(file), typed=b"\x04")
    assert "Objects to remove or switch off: 1." in text
    assert "Traceback" not in text
    assert "Nothing was changed" in text


def test_a_person_is_named_on_standard_input(environment: Mapping[str, str]) -> None:
    """As no log of commands has it."""

    def output(value: str, lines: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", "person", "hash", "--phone", value], cwd=ROOT,
            env=environment, input=lines, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        return done.stdout + done.stderr

    assert output("13800138000", "").strip() in output("-", "13800138000\n13800138001\n").split()
    assert "--phone -: standard input has no line" in output("-", "")


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
