"""A pytest plugin: how `pytest -n` spreads tests over processes.

The tests of a file stay in one process, so that its fixtures are made once, as do those of a folder
of tests/browser, which share a platform. Files that take longest begin first, so that the end finds
all processes at work; how long a file takes was measured (`make times`).
"""

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

# Seconds that each file took in an earlier run; one that is not in it may be a long one.
TIMES = Path(os.environ.get("TEST_TIMES") or Path(__file__).with_name("measured_times.json"))
BROWSER = "tests/browser/"


def measured_times(file: Path) -> dict[str, float]:
    """File → seconds that it took, {} when nothing was measured yet."""
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class ByPlace(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return place(nodeid)

        def remove_node(self, node: Any) -> str | None:
            """The test in which a process died, as one that hangs does. It is not run again: it
            would end one process after another, and the tests behind it would not run."""
            crashed, workload = None, self.assigned_work[node]
            for scope, unit in list(workload.items()):
                waiting = [name for name, is_done in unit.items() if not is_done]
                if waiting and crashed is None:
                    crashed = waiting.pop(0)
                    unit[crashed] = True
                if not waiting:
                    del workload[scope]  # a process that gets no test waits for its end
            super().remove_node(node)
            return crashed

        def schedule(self) -> None:
            is_begun = self.collection is not None
            super().schedule()
            if is_begun:  # a new process waits with a test until it knows the next one
                super().schedule()

    config.option.loadscopereorder = False  # it would begin with the file of the most tests
    return ByPlace(config, log)


def place(nodeid: str) -> str:
    """What has the same goes to the same process."""
    file = nodeid.partition("::")[0]
    return file.rpartition("/")[0] if BROWSER in file else file


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Only the processes of `pytest -n` have it.
    if hasattr(config, "workerinput"):
        seconds = measured_times(TIMES)
        items.sort(key=lambda item: -seconds.get(item.nodeid.partition("::")[0], math.inf))
