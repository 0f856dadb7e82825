"""How often a strike is repeated, and the last line of a run."""

from collections import Counter
from typing import Any

import pytest

from tests.scale.strikes import RUNS

FOLDER = "tests/scale/"
_TEXT, _SUMS, _GAP = "scale text", "scale sums", "scale gap"


def pytest_configure(config: pytest.Config) -> None:
    # With `pytest -n` the process that started the others has all reports.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(LastLine())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "run" in metafunc.fixturenames:
        metafunc.parametrize("run", range(1, RUNS + 1))


class Figures:
    """The figures of one strike, for the reader and for the last line."""

    def __init__(self, properties: list[tuple[str, Any]]) -> None:
        self._properties = properties

    def add(self, text: str, **sums: int) -> None:
        """A line of figures; the last line of the run has the sum of each of `sums`."""
        self._properties += [(_TEXT, text), (_SUMS, sums)]

    def add_gap(self, kind: str, seconds: float) -> None:
        """The last line has the longest gap of each kind, and where it was."""
        self._properties.append((_GAP, [kind, seconds]))


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Figures:
    return Figures(request.node.user_properties)


class LastLine:
    """Prints the figures of each test when it has ended, and a line for all of them at the end."""

    def __init__(self) -> None:
        self._outcomes: Counter[str] = Counter()
        self._sums: Counter[str] = Counter()
        self._gaps: dict[str, tuple[float, str]] = {}  # kind → the longest one, and where it was
        self._line = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.nodeid.startswith(FOLDER) or (report.passed and report.when != "call"):
            return
        self._outcomes[report.outcome] += 1
        name = report.nodeid.partition("::test_")[2]
        for kind, value in report.user_properties:
            if kind == _TEXT:
                print(f"\n{name}: {value}", flush=True)
            elif kind == _SUMS:
                self._sums.update(value)
            elif kind == _GAP:
                before = self._gaps.get(value[0], (0.0, ""))
                self._gaps[value[0]] = max(before, (float(value[1]), name))

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        parts = [
            f"{self._outcomes.total()} tests, {self._outcomes['failed']} failed",
            *(f"{number:,} {what}" for what, number in self._sums.items()),
            *(f"gap of {kind} {s:.2f} s ({where})" for kind, (s, where) in self._gaps.items()),
        ]
        verdict = "passed" if exitstatus == 0 else "failed"
        self._line = f"scale: {', '.join(parts)} – {verdict}"

    def pytest_unconfigure(self) -> None:
        if self._outcomes:
            print(self._line)
