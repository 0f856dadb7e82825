"""`scripts/run_tests.py` on small suites: what is run once more, what makes a run fail."""

import importlib.util
import os
import sys
import time
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests import database_branches

ROOT = Path(__file__).resolve().parents[3]
PASSES = "def test_passes(): pass\n"
FAILS = "def test_fails(): assert 'as always' == ''\n"
# Fails as long as its file is not there, and makes it.
FAILS_ONCE = """
import pathlib
import pytest

@pytest.mark.parametrize("name", {names})
def test_fails_once(name):
    file = pathlib.Path(__file__).with_name(name)
    was_there = file.exists()
    file.touch()
    assert was_there, "as it happens"
"""
# Only where it is asked for: it loads Django, which takes longer than the rest of a start.
BRANCHES = ("-p", "tests.database_branches")
REACHES = """
import pytest

@pytest.mark.{mark}
def test_reaches():
    from msgplatform.core.data import server
    server.ask()
"""


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take half of a start
    spec = importlib.util.spec_from_file_location("run_tests", ROOT / "scripts" / "run_tests.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "run_tests", module)  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


def run(program: ModuleType, folder: Path, *options: str, **files: str) -> tuple[int, list[Any]]:
    """The status that the run ends with, and its parts: a pytest for each file."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    pytest_command = [
        *(sys.executable, "-m", "pytest", "-c", os.devnull, "-p", "no:cacheprovider"),
        *("-p", "xdist", "-p", "tests.records", "--rootdir", str(folder)),
    ]  # fmt: skip
    os.environ.pop("PYTEST_CURRENT_TEST")  # or the inner run would count as a part of this test
    results = folder / "results"
    results.mkdir()
    runner = program.Runner(results, pytest_command, folder)
    runs = [program.Run(name, "sqlite", 0, [f"{name}.py"], options) for name in files]
    begun = time.monotonic()
    runner.run(runs)
    return program.outcome(runner, runs, begun), runs


def test_sums_and_times(
    program: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    status, (one, other) = run(program, tmp_path, test_a=PASSES, test_b=PASSES)
    assert status == 0
    assert set(one.record["seconds"]) == {"test_a.py"}
    assert min(one.core_seconds, other.core_seconds) > 0.05
    assert capfd.readouterr().out.splitlines()[-1] == "2 passed, 0 failed"


def test_what_passes_when_it_is_run_once_more_is_told(
    program: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    status, _ = run(program, tmp_path, test_a=FAILS_ONCE.format(names=["x", "y"]))
    output = capfd.readouterr().out
    assert status == 0
    assert "unsteady: test_a.py::test_fails_once[x] on sqlite" in output
    assert output.count("as it happens") >= 2, "what was said at first"
    assert output.splitlines()[-1] == "2 passed, 0 failed"


def test_three_unsteady_tests_are_too_many(
    program: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    status, _ = run(program, tmp_path, test_a=FAILS_ONCE.format(names=["x", "y", "z"]))
    assert status == 1
    assert "3 unsteady tests" in capfd.readouterr().out


def test_what_fails_again_fails_the_run(
    program: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    status, _ = run(program, tmp_path, test_a=FAILS, test_b=PASSES)
    assert status == 1
    lines = capfd.readouterr().out.splitlines()
    assert "failed: test_a.py::test_fails on sqlite" in lines
    assert lines[-1] == "1 passed, 1 failed"


@pytest.mark.parametrize("text", ["no Python", "import os\nos._exit(0)", ""])
def test_tests_that_did_not_run_fail_the_run(
    program: ModuleType, tmp_path: Path, text: str
) -> None:
    """Not to be collected, the end of the process, no test at all."""
    status, _ = run(program, tmp_path, test_a=text, test_b=PASSES)
    assert status == 1


def test_a_branch_that_no_marked_test_reaches_on_both_is_named(
    program: ModuleType, tmp_path: Path
) -> None:
    _, (run_on_sqlite,) = run(
        program, tmp_path, *BRANCHES, test_a=REACHES.format(mark="both_databases")
    )
    unreached = program.untested_branches([run_on_sqlite])
    assert len(unreached) == 2 * len(list(program.branches())) - 1
    places = [line.split(" and no test")[0] for line in unreached]
    (place,) = [place for place, count in Counter(places).items() if count == 1]
    assert place.startswith("msgplatform/core/data/server.py:")


def test_a_file_without_the_mark_reaches_nothing(program: ModuleType, tmp_path: Path) -> None:
    _, runs = run(
        program, tmp_path, *BRANCHES, test_a=REACHES.format(mark="skipif(False, reason='')")
    )
    assert len(program.untested_branches(runs)) == 2 * len(list(program.branches()))


def test_files_for_both_databases(program: ModuleType) -> None:
    """The program reads the mark, pytest does not collect them for it."""
    files = program.files_for_both_databases()
    assert 20 <= len(files) < 80
    for file in files:
        assert f"pytest.mark.{database_branches.MARK}" in (ROOT / file).read_text()
