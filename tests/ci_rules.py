"""A pytest plugin: what counts when CI=true.

A skipped test is a failed one, and no folder may collect fewer tests than expected_counts.json
says (when the whole folder was asked for): a test that quietly went missing shows nothing.
"""

import json
import os
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parent
EXPECTED = TESTS / "expected_counts.json"


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    # An expected failure is reported as skipped too.
    if in_ci() and report.skipped and not hasattr(report, "wasxfail"):
        _fail(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if in_ci() and report.skipped:
        _fail(report)
    return report


def _fail(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    report.outcome = "failed"
    report.longrepr = f"A skip is a failure when CI=true: {reason}"


def pytest_collection_finish(session: pytest.Session) -> None:
    # With `pytest -n` every process collects, and the one that started them counts.
    if in_ci() and not hasattr(session.config, "workerinput"):
        found = Counter(folder_of(item.path) for item in session.items)
        if problems := _shortfalls(session.config, found):
            raise pytest.UsageError(problems)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: Iterable[str]) -> None:
    if in_ci():
        root = node.config.rootpath
        found = Counter(folder_of(root / nodeid.split("::")[0]) for nodeid in ids)
        if problems := _shortfalls(node.config, found):
            pytest.exit(problems, returncode=pytest.ExitCode.USAGE_ERROR)


def _shortfalls(config: pytest.Config, found: Mapping[str, int]) -> str:
    expected = json.loads(EXPECTED.read_text(encoding="utf-8"))
    whole = whole_folders(config.args, config.invocation_params.dir, expected)
    return "\n".join(shortfalls(found, expected, whole))


def folder_of(path: Path) -> str:
    """The folder below tests/ that a file belongs to, or ''."""
    return path.relative_to(TESTS).parts[0] if path.is_relative_to(TESTS) else ""


def whole_folders(args: Iterable[str], directory: Path, names: Iterable[str]) -> set[str]:
    """Those of the folders that the command line asks for as a whole."""
    asked = [(directory / arg).resolve() for arg in args if "::" not in arg]
    return {name for name in names if any((TESTS / name).is_relative_to(path) for path in asked)}


def shortfalls(
    found: Mapping[str, int], expected: Mapping[str, int], whole: Iterable[str]
) -> list[str]:
    """A sentence for every folder with fewer tests than expected, or without a number."""
    return [
        f"tests/{name}: {found.get(name, 0)} tests were collected, {expected[name]} are expected "
        f"({EXPECTED.name}); a missing test shows nothing."
        for name in sorted(whole)
        if found.get(name, 0) < expected[name]
    ] + [
        f"tests/{name} has no number in {EXPECTED.name}; {found[name]} tests were collected."
        for name in sorted(set(found) - set(expected) - {""})
    ]
