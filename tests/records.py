"""A pytest plugin: what a run leaves behind for `scripts/run_tests.py`, in the file TEST_RECORD.

How long each file took, how many tests of each folder passed, and the names of those that failed
with what pytest said of them. Written at the end of the run, by the process that started it. Each
process that runs tests leaves a file beside it, with the core-seconds of each of its files: its
own, those of the processes that it has started and that have ended, and those of programs' hosts.
"""

import json
import os
from collections import Counter, defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

from tests import program_host


def record_file() -> Path | None:
    """The file to write; None if nobody asks. A pytest that a test has started is a part of that
    test, and has none."""
    name = os.environ.get("TEST_RECORD")
    return Path(name) if name and "PYTEST_CURRENT_TEST" not in os.environ else None


def pytest_configure(config: pytest.Config) -> None:
    if file := record_file():
        config.pluginmanager.register(Costs(file.with_suffix(f".{os.getpid()}.costs")))
        if not hasattr(config, "workerinput"):
            config.pluginmanager.register(Recorder(file))


class Costs:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._core_seconds: dict[str, float] = defaultdict(float)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        before = _core_seconds()
        result = yield
        self._core_seconds[item.nodeid.partition("::")[0]] += _core_seconds() - before
        return result

    def pytest_sessionfinish(self) -> None:
        self._file.write_text(json.dumps(self._core_seconds), encoding="utf-8")


def _core_seconds() -> float:
    return sum(os.times()[:4]) + program_host.core_seconds()


class Recorder:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._seconds: dict[str, float] = defaultdict(float)
        self._passed: Counter[str] = Counter()
        self._failures: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        self._seconds[file] += report.duration
        if report.failed:
            self._failures[report.nodeid] = f"{report.when}: {report.longreprtext}"
        elif report.when == "call" and report.passed:
            self._passed["/".join(file.split("/")[:2])] += 1

    def pytest_sessionfinish(self) -> None:
        record = {
            "seconds": {file: round(seconds, 1) for file, seconds in self._seconds.items()},
            "passed": self._passed,
            "failures": self._failures,
        }
        self._file.write_text(json.dumps(record), encoding="utf-8")
