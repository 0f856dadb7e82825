"""The order of files, by running pytest on small suites."""

import itertools
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tests import spreading

ROOT = Path(__file__).resolve().parents[3]
# Each writes down its name and when it ran.
RECORD = """
import os, pathlib, time
import pytest

@pytest.fixture(autouse=True)
def _record(request):
    begun = time.monotonic()
    yield
    time.sleep(0.05)
    line = f"{request.node.originalname} {begun} {time.monotonic()}"
    with pathlib.Path(os.environ["RECORD"]).open("a") as file:
        print(line, file=file)
"""
MANY = "".join(f"\ndef test_{n}(): pass\n" for n in range(6))
# Two of these end when both have begun.
MEETS = """
import os, pathlib, time

def test_meets():
    here = pathlib.Path(os.environ["RECORD"]).with_name("meeting")
    here.mkdir(exist_ok=True)
    (here / __name__).touch()
    deadline = time.monotonic() + 180
    while len(list(here.iterdir())) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
"""


class Suite:
    def __init__(self, folder: Path, **files: str) -> None:
        self.folder, self._record = folder, folder / "record"
        (folder / "conftest.py").write_text(RECORD)
        for name, text in files.items():
            (folder / f"{name}.py").write_text(text)

    def run(self, *options: str, status: int = 0) -> dict[str, list[tuple[float, float]]]:
        """Test → begin and end of each of its runs, in the order of the first ends. pytest ends
        with this status."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
        environment |= {"RECORD": str(self._record), "CI": ""}
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # they take half of a start
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider"),
                *("-p", "xdist", "-p", "tests.spreading"),
                *("--rootdir", str(self.folder), "--strict-markers", *options, str(self.folder)),
            ],
            cwd=ROOT, env=environment, check=False,
        )  # fmt: skip
        assert done.returncode == status
        ran = defaultdict(list)
        for line in self._record.read_text().splitlines():
            name, begun, ended = line.split()
            ran[name].append((float(begun), float(ended)))
        return ran


def test_the_longest_begins_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was not measured may be a long one."""
    times = tmp_path / "times.json"
    monkeypatch.setenv("TEST_TIMES", str(times))
    suite = Suite(tmp_path, test_b=MANY)
    (tmp_path / "test_short.py").write_text("def test_short(): pass")
    (tmp_path / "test_new.py").write_text("def test_new(): pass")
    times.write_text(json.dumps({"test_b.py": 0.6, "test_short.py": 0.1}))
    order = list(suite.run("-n", "1"))
    assert (order[0], order[1], order[-1]) == ("test_new", "test_0", "test_short")


def test_a_file_stays_in_one_process(tmp_path: Path) -> None:
    """Several at once, each in its order."""
    files = {f"test_{name}": MANY.replace("test_", f"test_{name}_") for name in "abcd"}
    for name in ("test_a", "test_b"):  # the first of each process
        files[name] += MEETS
    ran = Suite(tmp_path, **files).run("-n", "2")
    for name in "abcd":
        mine = [ran[f"test_{name}_{n}"][0] for n in range(6)]
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(mine))
    one, other = ran["test_meets"]
    assert max(one[0], other[0]) < min(one[1], other[1])


def test_a_test_that_hangs_is_run_once_and_those_behind_it_run(tmp_path: Path) -> None:
    first = "def test_first(): pass\n"
    # One time for every test would end another one, too, when a busy machine stops it.
    ends = "faulthandler.dump_traceback_later(1, exit=True)"
    hangs = f"import faulthandler, time\ndef test_hangs(): {ends}; time.sleep(600)\n"
    last = "def test_last(): pass\n"
    (tmp_path / "test_last_file.py").write_text("def test_of_another_file(): pass")
    ran = Suite(tmp_path, test_file=first + hangs + last).run("-n", "1", status=1)
    assert {name: len(times) for name, times in ran.items()} == {
        "test_first": 1, "test_last": 1, "test_of_another_file": 1
    }  # fmt: skip


def test_what_shares_a_platform_stays_in_one_process() -> None:
    """The files of a folder of the browser's tests."""
    folder = "tests/browser/web_server"
    assert spreading.place(f"{folder}/test_a.py::test_1") == folder
    assert spreading.place(f"{folder}/test_b.py::test_2[dark]") == folder
    assert spreading.place("tests/unit/test_a.py::test_1") == "tests/unit/test_a.py"
