"""A pytest plugin: how `pytest -n` spreads tests over processes, and tests that run alone.

The tests of a file stay in one process, so that its fixtures are made once; those of a flow stay
together for each database. Files that take longest begin first, so that the end finds all
processes at work.

`alone` is for a test that measures the machine: no other test runs meanwhile, in this run or in
another one on this machine.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

# From the one that takes longest.
FIRST = (
    "test_sms_crash", "test_notify_crash", "test_notify", "test_readme", "test_sms_link",
    "test_console", "test_sms_pages", "test_sms", "test_bench", "test_sms_sender",
    "test_sms_model", "test_supervision", "test_notify_archive", "test_agent_process",
    "test_sender_memory", "test_agent_trouble", "test_checks", "test_notify_sender",
)  # fmt: skip
FLOWS = "tests/flows/"
DATABASES = ("sqlite", "mariadb")
# A pytest that a test has started is a part of that test.
_NESTED = "PYTEST_CURRENT_TEST" in os.environ


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "alone: no other test runs on this machine meanwhile")


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
    kinds = [kind for kind in DATABASES if FLOWS in file and kind in name.partition("[")[2]]
    return " ".join([file, *kinds])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Only the processes of `pytest -n` have it.
    if hasattr(config, "workerinput"):
        items.sort(key=turn)


def turn(item: pytest.Item) -> tuple[bool, int]:
    """Sorts: long ones first, those that run alone last, when the others have ended."""
    name = item.path.stem
    rank = FIRST.index(name) if name in FIRST else len(FIRST)
    return item.get_closest_marker("alone") is not None, rank


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if _NESTED:
        return (yield)
    with _machine(to_itself=item.get_closest_marker("alone") is not None):
        return (yield)


@contextmanager
def _machine(to_itself: bool) -> Iterator[None]:
    """Shared with other tests, or not. Who waits to have it alone lets nobody else begin."""
    folder = Path(tempfile.gettempdir())
    with (
        (folder / f"mp-tests-{os.getuid()}.next").open("w") as entrance,
        (folder / f"mp-tests-{os.getuid()}.lock").open("w") as machine,
    ):
        fcntl.flock(entrance, fcntl.LOCK_EX)
        fcntl.flock(machine, fcntl.LOCK_EX if to_itself else fcntl.LOCK_SH)
        fcntl.flock(entrance, fcntl.LOCK_UN)
        yield
