"""How often a strike is repeated, the share that runs everywhere, and the last line of a run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# SCALE_SHARE=yes: the tests marked `share`, once.
_IS_SHARE = os.environ.get("SCALE_SHARE", "") == "yes"
_RUNS = 1 if _IS_SHARE else int(os.environ.get("SCALE_RUNS", "2"))
_figures: list[str] = []


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "share: a strike that SCALE_SHARE=yes runs, too")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "run" in metafunc.fixturenames:
        metafunc.parametrize("run", range(1, _RUNS + 1))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not _IS_SHARE:
        return
    others = [item for item in items if _is_here(item) and not item.get_closest_marker("share")]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in others]


def _is_here(item: pytest.Item) -> bool:
    return item.path.is_relative_to(Path(__file__).parent)


class Figures:
    """The figures of one strike, for the reader and for the last line."""

    def __init__(self, name: str) -> None:
        self._name = name

    def add(self, text: str) -> None:
        """Print a line of figures now, and at the end of the run."""
        line = f"{self._name}: {text}"
        print(f"\n{line}", flush=True)
        _figures.append(line)


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Figures:
    return Figures(request.node.name.removeprefix("test_"))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if session.config.option.collectonly or not any(_is_here(item) for item in session.items):
        return
    verdict = "passed" if exitstatus == 0 else "failed"
    session.config.stash[_LAST_LINE] = f"scale: {'; '.join(_figures) or 'no figures'} – {verdict}"


_LAST_LINE = pytest.StashKey[str]()


def pytest_unconfigure(config: pytest.Config) -> None:
    if line := config.stash.get(_LAST_LINE, ""):
        print(line)
