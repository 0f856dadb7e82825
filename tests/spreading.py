"""A pytest plugin: how `pytest -n` spreads tests over processes, and tests that run alone.

The tests of a file stay in one process, so that its fixtures are made once; those of a flow stay
together for each database, and those of a folder of tests/browser share a platform. Files that take
longest begin first, so that the end finds all processes at work; how long a file takes was measured
(`--record-times`).

`alone` is for a test that measures the machine: no other test runs meanwhile, in this run or in
another one on this machine. Runs side by side (`scripts/test.sh`) come to such tests at their end,
at different times, so these tests let the others go first for a while.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pytest

# Seconds that each file took, written by `pytest -n … --record-times`; one that is not in it may be
# a long one.
TIMES = Path(os.environ.get("TEST_TIMES") or Path(__file__).with_name("measured_times.json"))
FLOWS, BROWSER = "tests/flows/", "tests/browser/"
DATABASES = ("sqlite", "mariadb")
# Seconds for which a test that runs alone lets tests of other runs begin before it.
COURTEOUS_SECONDS = 1200.0
# A pytest that a test has started is a part of that test.
_NESTED = "PYTEST_CURRENT_TEST" in os.environ


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-times", action="store_true", help=f"write {TIMES.name}")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "alone: no other test runs on this machine meanwhile")
    if config.getoption("--record-times") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(TIMES))


class Recorder:
    """Adds up how long each file takes; what did not run keeps its time."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid.partition("::")[0]] += report.duration

    def pytest_sessionfinish(self) -> None:
        seconds = measured(self._file) | {
            file: round(took, 1) for file, took in self._seconds.items()
        }
        text = json.dumps(dict(sorted(seconds.items())), indent=1)
        self._file.write_text(text + "\n", encoding="utf-8")


def measured(file: Path) -> dict[str, float]:
    """File → seconds that it took, {} when nothing was recorded yet."""
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class ByPlace(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return place(nodeid)

    config.option.loadscopereorder = False  # it would begin with the file of the most tests
    return ByPlace(config, log)


def place(nodeid: str) -> str:
    """What has the same goes to the same process."""
    file, _, name = nodeid.partition("::")
    if BROWSER in file:
        return file.rpartition("/")[0]
    kinds = [kind for kind in DATABASES if FLOWS in file and kind in name.partition("[")[2]]
    return " ".join([file, *kinds])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Only the processes of `pytest -n` have it.
    if hasattr(config, "workerinput"):
        seconds = measured(TIMES)
        items.sort(key=lambda item: turn(item, seconds))


def turn(item: pytest.Item, seconds: Mapping[str, float]) -> tuple[bool, float]:
    """Sorts: long ones first, those that run alone last, when the others have ended."""
    file = item.nodeid.partition("::")[0]
    return item.get_closest_marker("alone") is not None, -seconds.get(file, math.inf)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if _NESTED:
        return (yield)
    with _machine(to_itself=item.get_closest_marker("alone") is not None):
        return (yield)


@contextmanager
def _machine(to_itself: bool) -> Iterator[None]:
    """The machine, shared with other tests or for one test alone."""
    folder = Path(tempfile.gettempdir())
    with (
        (folder / f"mp-tests-{os.getuid()}.next").open("w") as entrance,
        (folder / f"mp-tests-{os.getuid()}.lock").open("w") as machine,
    ):
        if not (to_itself and _is_free_in_time(machine)):
            # Whoever waits here lets no other test begin.
            fcntl.flock(entrance, fcntl.LOCK_EX)
            fcntl.flock(machine, fcntl.LOCK_EX if to_itself else fcntl.LOCK_SH)
            fcntl.flock(entrance, fcntl.LOCK_UN)
        yield


def _is_free_in_time(machine: IO[str]) -> bool:
    """True if the machine is locked for one test, at a moment at which no other test runs."""
    deadline = time.monotonic() + COURTEOUS_SECONDS
    while time.monotonic() < deadline:
        with suppress(BlockingIOError):
            fcntl.flock(machine, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(0.1)
    return False
