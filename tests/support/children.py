"""Real processes for tests: they see the test's own database and Redis by their environment."""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil

from tests.program_host import start_code
from tests.waiting import pause

_ENVIRONMENT = {"MSGPLATFORM_PROFILE": "daemon"}

_PRELUDE = """
import json, os, sys

def say(value):
    print(json.dumps(value), flush=True)

def wait():
    say("ready")
    sys.stdin.readline()
"""

# Forked from a process without connections: the imports are paid for once, whatever the number.
_TOGETHER = """
import multiprocessing

def _child(work, number, barrier, results):
    barrier.wait()
    try:
        results.put((number, work(number)))
    except Exception as error:
        results.put((number, {"error": type(error).__name__, "text": str(error)}))

def together(work, n):
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(n), context.Queue()
    children = [
        context.Process(target=_child, args=(work, number, barrier, results)) for number in range(n)
    ]
    for child in children:
        child.start()
    answers = dict(results.get(timeout=120) for _ in children)
    for child in children:
        child.join()
    say([answers[number] for number in range(n)])
"""


class Child:
    """A Python process that runs `program`; it says JSON lines with `say` and waits with `wait`."""

    def __init__(self, program: str, *args: object, **environment: str) -> None:
        self.process = start_code(
            _PRELUDE + _TOGETHER + program, [*map(str, args)],
            {**os.environ, **_ENVIRONMENT, **environment},
        )  # fmt: skip

    def heard(self) -> Any:
        """The next thing it says."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, f"the child ended with {self.process.wait()}; see its standard error above"
        return json.loads(line)

    def ready(self) -> None:
        """Return when it waits."""
        assert self.heard() == "ready"

    def go(self) -> None:
        """Let it go on from `wait()`."""
        assert self.process.stdin
        self.process.stdin.write(b"go\n")

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.kill()
        self.process.wait()

    def frozen(self) -> None:
        """Return when it stands still: a failpoint with `STOP`."""
        begun, process = time.monotonic(), psutil.Process(self.process.pid)
        while process.status() != psutil.STATUS_STOPPED:
            status = self.process.poll()
            assert status is None, f"it ended with {status}; see its standard error above"
            pause(begun, 0.01)

    def thaw(self) -> None:
        """Let it go on from where it stands still."""
        self.process.send_signal(signal.SIGCONT)

    def ended(self) -> int:
        """Wait until it ended by itself; its exit code."""
        return self.process.wait(timeout=300)


@contextmanager
def child(program: str, *args: object, **environment: str) -> Iterator[Child]:
    """A child that is gone afterwards, whatever happens."""
    started = Child(program, *args, **environment)
    try:
        yield started
    finally:
        started.kill()
        for pipe in (started.process.stdin, started.process.stdout):
            if pipe:
                pipe.close()


def run(program: str, *args: object, **environment: str) -> Any:
    """Run it to its end and return what it said first."""
    with child(program, *args, **environment) as started:
        said = started.heard()
        assert started.ended() == 0
        return said
