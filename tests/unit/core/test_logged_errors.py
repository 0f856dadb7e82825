"""What counts as an unexpected error in the logs of programs."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

from msgplatform.core.servers.logged_errors import unexpected_errors

_PROGRAM = """
from msgplatform.core import logging
logging.configure(as_json=True)
log = logging.get("tests")
log.info("started")
log.warning("waiting", why="no Redis")
for number in range(2):
    try:
        raise ValueError(f"number {number}")
    except ValueError:
        log.exception("turn_failed", role="maker")
log.error("database_away", why="gone")
raise RuntimeError("boom")
"""


def test_a_program_is_judged_by_what_it_wrote(tmp_path: Path) -> None:
    path = tmp_path / "run_maker.log"
    with path.open("w") as log:
        subprocess.run(
            [sys.executable, "-c", _PROGRAM], stderr=log, env=dict(os.environ), check=False
        )
    assert unexpected_errors(tmp_path) == [
        "run_maker.log: turn_failed (2): ValueError: number 1 · role=maker",
        "run_maker.log: database_away (1): gone",
        "run_maker.log: traceback (1): RuntimeError: boom",
    ]
    text = path.read_text()
    assert unexpected_errors(text, {"database_away", "traceback"}) == [
        "turn_failed (2): ValueError: number 1 · role=maker"
    ]
    assert unexpected_errors(path, {"turn_failed", "database_away", "traceback"}) == []


def test_the_error_and_not_its_note_is_shown(tmp_path: Path) -> None:
    program = (
        _PROGRAM.partition("for number")[0]
        + """
try:
    try:
        raise KeyError("first")
    except KeyError:
        error = ValueError("the error\\n  goes on")
        error.add_note("a note")
        raise error
except ValueError:
    log.exception("turn_failed")
raise error
"""
    )
    done = subprocess.run(
        [sys.executable, "-c", program], stderr=subprocess.PIPE, check=False, text=True
    )
    assert unexpected_errors(done.stderr) == [
        "turn_failed (1): ValueError: the error",
        "traceback (2): ValueError: the error",
    ]


def test_a_line_that_a_killed_process_cut_is_no_error() -> None:
    whole = json.dumps({"event": "x", "level": logging.getLevelName(logging.ERROR).lower()})
    assert unexpected_errors(whole) == ["x (1): "]
    assert unexpected_errors(whole[:-1]) == []


def test_the_web_servers_own_errors_count() -> None:
    assert unexpected_errors("[ERROR] Unexpected exit from worker-1\n[INFO] Listening") == [
        "web_server (1): Unexpected exit from worker-1"
    ]
