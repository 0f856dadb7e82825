import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ci_rules import TESTS, shortfalls, whole_folders

NAMES = ["unit", "integration"]
SAMPLE = """
import pytest

def test_passes(): pass

def test_skips(): pytest.skip("no server")

@pytest.mark.xfail(reason="known")
def test_expected(): assert False
"""


def run(directory: Path, ci: str) -> subprocess.CompletedProcess:
    """pytest in a process of its own, with these rules and without this project's settings."""
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "tests.ci_rules", "-rf"),
            *("-c", os.devnull, "--rootdir", str(directory), "-p", "no:cacheprovider"),
            str(directory),
        ],
        cwd=TESTS.parent,
        env={**os.environ, "CI": ci, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_skipped_test_fails_in_ci_and_an_expected_failure_does_not(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(SAMPLE)
    strict = run(tmp_path, "true")
    assert strict.returncode == 1
    assert "A skip is a failure when CI=true: Skipped: no server" in strict.stdout
    assert "1 failed, 1 passed, 1 xfailed" in strict.stdout
    assert "1 passed, 1 skipped, 1 xfailed" in run(tmp_path, "").stdout


def test_a_skipped_module_fails_in_ci(tmp_path: Path) -> None:
    (tmp_path / "test_module.py").write_text("import pytest\npytest.importorskip('no_such_one')")
    strict = run(tmp_path, "true")
    assert strict.returncode == 2
    assert "A skip is a failure when CI=true: Skipped: could not import" in strict.stdout
    assert "1 skipped" in run(tmp_path, "").stdout


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["tests"], {"unit", "integration"}),
        (["."], {"unit", "integration"}),
        (["tests/unit"], {"unit"}),
        (["tests/unit/"], {"unit"}),
        (["tests/unit", "tests/integration/test_x.py"], {"unit"}),
        (["tests/unit/test_x.py::test_y"], set()),
        ([str(TESTS / "integration")], {"integration"}),
    ],
)
def test_only_a_folder_asked_for_as_a_whole_is_counted(args: list[str], expected: object) -> None:
    assert whole_folders(args, TESTS.parent, NAMES) == expected


def test_fewer_tests_than_expected_are_named() -> None:
    expected = {"unit": 10, "integration": 5}
    assert shortfalls({"unit": 10, "integration": 7}, expected, NAMES) == []
    assert shortfalls({"unit": 9}, expected, {"unit"})[0].startswith("tests/unit: 9 tests were")
    assert shortfalls({}, expected, {"unit"})[0].startswith("tests/unit: 0 tests were")
    assert shortfalls({"unit": 9}, expected, set()) == []
    assert "tests/browser has no number" in shortfalls({"browser": 1}, expected, set())[0]


@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_missing_test_ends_the_run_before_any_ran(tmp_path: Path, processes: str) -> None:
    folder = tmp_path / "tests"
    (folder / "unit").mkdir(parents=True)
    (folder / "__init__.py").touch()
    shutil.copy(TESTS / "ci_rules.py", folder)
    (folder / "expected_counts.json").write_text('{"unit": 3}')
    (folder / "unit" / "test_sample.py").write_text(
        "def test_one(): print('it ran')\ndef test_two(): pass"
    )
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "xdist", "-p", "tests.ci_rules", "-s"),
            *("-c", os.devnull, "--rootdir", ".", "-p", "no:cacheprovider"),
            *("-n", processes, "tests/unit"),
        ],
        cwd=tmp_path,
        env={**os.environ, "CI": "true", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "tests/unit: 2 tests were collected, 3 are expected" in done.stdout + done.stderr
    assert "it ran" not in done.stdout
