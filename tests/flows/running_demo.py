"""`make demo` in a terminal that stays open, and what its web server tells Prometheus."""

import contextlib
import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import psutil
from prometheus_client.parser import text_string_to_metric_families

SECONDS = 900.0


def command(process: psutil.Process) -> str:
    """Its command line, '' of one that has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


class Demo:
    """`make demo` with these arguments; `how` are those of Popen."""

    def __init__(self, folder: Path, arguments: str, how: Mapping[str, Any]) -> None:
        self._said, self._printed = folder / "terminal", folder / "account"
        with self._said.open("w") as said, self._printed.open("w") as printed:
            self.process = subprocess.Popen(
                ["make", "demo", f"ARGS={arguments}"],
                stdin=subprocess.DEVNULL, stdout=printed, stderr=said, start_new_session=True,
                **how,
            )  # fmt: skip
        # Metric → the largest value that one of its samples had so far.
        self.largest: defaultdict[str, float] = defaultdict(float)

    @property
    def said(self) -> str:
        return self._said.read_text()

    @property
    def account(self) -> Any:
        """What it has printed for programs, at its end."""
        return json.loads(self._printed.read_text())

    @property
    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    @property
    def address(self) -> str:
        """Where it listens, once it does; its web server has a port of its own."""
        for child in self.children:
            if found := re.search(r"msgplatform\.doors\.web .*--port (\d+)", command(child)):
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
            time.sleep(4)  # a look at the metrics asks everything

    def until_above_zero(self, names: Collection[str], stopped: str = "") -> None:
        """Wait until each metric was above zero; the processes of a program stand still."""
        processes = [child for child in self.children if stopped and stopped in command(child)]
        assert bool(processes) is bool(stopped)
        for process in processes:
            process.suspend()
        try:
            self.until(lambda: self.scrape() and all(self.largest[name] for name in names))
        finally:
            for process in processes:
                process.resume()

    def interrupt(self) -> None:
        """Ctrl-C; all that it has started ends."""
        children = self.children
        os.killpg(self.process.pid, signal.SIGINT)
        self.process.wait(SECONDS)
        assert psutil.wait_procs(children, timeout=120)[1] == []

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
