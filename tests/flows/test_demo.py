"""`demo` as a person leaves it running: it goes on, its metrics move, and Ctrl-C ends it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from scripts.reference import metrics as metrics_page
from tests.cluster import ROOT
from tests.unit.platform.monitoring_files import DECLARED, dashboard_expressions, rule_expressions

pytestmark = pytest.mark.both_databases(
    "notify/archive/archiver.py",
    "notify/feed/dispatcher/dispatcher.py",
    "crmsync/poller/reading/database.py",
)

SECONDS = 900.0
# What shows that a flow moves, after the accounting.
MOVING = (
    "msgplatform_notify_attempts_total",
    "msgplatform_sms_accepted_total",
    "msgplatform_sms_received_total",
    "msgplatform_feed_last_hour",
    "msgplatform_crmsync_records_last_hour",
)
# There the oldest entry is found by reading all of them, which only the cleaner does.
NOT_ON_SQLITE = {"msgplatform_feed_entries_archive_overdue_seconds"}


def command(process: psutil.Process) -> str:
    """Its command line, '' of one that has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


class Demo:
    """`manage.py demo` in a terminal, small enough for a test."""

    def __init__(self, folder: Path) -> None:
        self.terminal = folder / "terminal"
        with self.terminal.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "demo", "--messages", "1000", "--port", "0"],
                cwd=ROOT, env={**os.environ, "STATE_DIR": str(folder)},
                stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        # Metric → the largest value that one of its samples had so far.
        self.largest: defaultdict[str, float] = defaultdict(float)

    @property
    def said(self) -> str:
        return self.terminal.read_text()

    @property
    def address(self) -> str:
        """Where it listens, once it does; its web server has a port of its own."""
        for child in psutil.Process(self.process.pid).children(recursive=True):
            if found := re.search(r"msgplatform\.web .*--port (\d+)", command(child)):
                return f"http://127.0.0.1:{found[1]}"
        return ""

    def scrape(self) -> Mapping[str, float]:
        """Metric → the sum of its samples now; empty while the server starts."""
        now: defaultdict[str, float] = defaultdict(float)
        try:
            with urllib.request.urlopen(f"{self.address}/metrics", timeout=30) as answer:
                text = answer.read().decode()
        except (OSError, ValueError, psutil.Error):
            return {}
        for family in text_string_to_metric_families(text):
            name = family.name + "_total" * (family.type == "counter")
            for sample in family.samples:
                now[name] += sample.value
                self.largest[name] = max(self.largest[name], sample.value)
        return now

    def until(self, holds: Callable[[], object]) -> None:
        deadline = time.monotonic() + SECONDS
        while not holds():
            assert self.process.poll() is None, self.said
            assert time.monotonic() < deadline, self.said
            time.sleep(0.2)


@pytest.fixture
def demo() -> Iterator[Demo]:
    folder = Path(tempfile.mkdtemp(prefix="mp-demo-"))  # short: a socket's path is bounded
    demo = Demo(folder)
    yield demo
    if demo.process.poll() is None:
        os.killpg(demo.process.pid, signal.SIGKILL)
        demo.process.wait()
    shutil.rmtree(folder, ignore_errors=True)


def test_it_goes_on_with_metrics_for_every_rule_and_chart_until_it_is_stopped(demo: Demo) -> None:
    accounted: dict[str, float] = {}

    def is_accounted() -> bool:
        is_over = "Ctrl-C stops everything" in demo.said
        now = demo.scrape()
        if is_over:
            accounted.update(now)
        return bool(accounted)

    def moves() -> bool:
        now = demo.scrape()
        return all(now.get(name, 0) > accounted.get(name, 0) for name in MOVING)

    demo.until(is_accounted)
    demo.until(moves)
    asked = {name for one in dashboard_expressions() for name in metrics_page.metrics_in(one)}
    demo.until(lambda: demo.scrape() and not {name for name in asked if not demo.largest[name]})
    of_rules = {name for one in rule_expressions() for name in metrics_page.metrics_in(one)}
    demo.until(lambda: demo.scrape() and of_rules - NOT_ON_SQLITE <= demo.largest.keys())
    assert demo.largest.keys() <= DECLARED.keys()

    children = psutil.Process(demo.process.pid).children(recursive=True)
    assert any("demo.sink" in command(child) for child in children)
    os.killpg(demo.process.pid, signal.SIGINT)  # as Ctrl-C does
    # Fewer messages than a demo needs: it says so at the end, and nothing else.
    assert demo.process.wait(SECONDS) == 1, demo.said
    assert "Traceback" not in demo.said
    assert psutil.wait_procs(children, timeout=120)[1] == []
