"""The daemon loop in real processes: signals, waking, patience, a unit that raises."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from msgplatform.core.daemons.command import Copy
from msgplatform.core.daemons.daemon import Loop, Worker
from msgplatform.core.daemons.thread_loop import MAX_AWAY_PAUSE
from tests.waiting import pause

# Programs begin their turns when the database has its tables.
pytestmark = pytest.mark.django_db(transaction=True)

# A worker whose behaviour is chosen by the first argument; it prints what happens.
PROGRAM = """
import sys, time, django
django.setup()
from msgplatform.core.daemons.daemon import Loop, Worker
from msgplatform.core.errors import Unavailable
from msgplatform.core.rates.backoff import Backoff

class Probe(Worker):
    role = "probe"
    turns = 0
    def turn(self):
        self.turns += 1
        print("turn", flush=True)
        mode = sys.argv[1]
        if mode == "raises":
            raise ValueError("poison")
        if mode == "away":
            raise Unavailable("Redis is away")
        return False
    def drain(self, deadline):
        print("draining", flush=True)
        if sys.argv[1] == "slow-drain":
            while time.monotonic() < deadline:
                time.sleep(0.05)
        print("drained", flush=True)
    def stop(self):
        print("stopped", flush=True)

probe = Probe()
probe.stopping.install()
loop = Loop(probe)
loop.idle = Backoff(first=3600.0, cap=3600.0)
loop.run(drain_seconds=float(sys.argv[2]))
"""


@pytest.fixture
def start() -> Iterator[object]:
    started: list[subprocess.Popen[str]] = []

    def run(mode: str, drain_seconds: float = 60) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, mode, str(drain_seconds)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ,
        )  # fmt: skip
        started.append(process)
        assert process.stdout
        assert process.stdout.readline() == "turn\n"
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_drains(start, number: signal.Signals) -> None:  # type: ignore[no-untyped-def]
    process = start("idle")
    process.send_signal(number)
    output, _ = process.communicate(timeout=180)
    assert output.splitlines()[-3:] == ["draining", "drained", "stopped"]
    assert process.returncode == 0


def test_the_second_signal_kills(start) -> None:  # type: ignore[no-untyped-def]
    process = start("slow-drain", drain_seconds=600)
    process.send_signal(signal.SIGTERM)
    assert "draining\n" in process.stdout
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=180)
    assert process.returncode == -signal.SIGTERM
    assert "drained" not in output


def test_draining_is_bounded(start) -> None:  # type: ignore[no-untyped-def]
    process = start("slow-drain", drain_seconds=0.2)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=180)
    assert "drained" in output
    assert process.returncode == 0


def test_a_waiting_daemon_wakes_at_once(start) -> None:  # type: ignore[no-untyped-def]
    """The loop pauses for an hour here; `time.sleep` would not be woken by SIGTERM."""
    process = start("idle")
    time.sleep(0.5)  # by now it waits, as a rule: the test above sends its signal earlier
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=180)


@pytest.mark.parametrize(("mode", "logged"), [("raises", "turn_failed"), ("away", "waiting")])
def test_trouble_does_not_end_the_daemon(start, mode: str, logged: str) -> None:  # type: ignore[no-untyped-def]
    process = start(mode)
    assert process.stdout.readline() == "turn\n", "it goes on after a pause"
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=180)
    assert logged in errors
    assert process.returncode == 0


def test_a_server_that_is_away_is_asked_again_within_two_seconds() -> None:
    """However long it has been away: the work goes on when the server does."""
    loop = Loop(Worker())
    assert max(loop.away.next() for _ in range(20)) == MAX_AWAY_PAUSE == 2.0


def test_a_copy_that_cannot_be_started_is_started_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent goes on: all other copies would die with it."""
    copy = Copy([sys.executable, "-c", ""])

    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    with monkeypatch.context() as context:
        context.setattr(subprocess, "Popen", refuse)
        copy.keep_running()
    begun = time.monotonic()
    while copy.process is None:
        pause(begun, 0.05)
        copy.keep_running()
    copy.signal(signal.SIGKILL)
    copy.wait()


def test_a_sigterm_ends_several_processes_whenever_it_comes() -> None:
    """The parent looks without a pause here, so that signals meet it at every line. They are
    repeated, because one may come before `run` listens."""
    program = (
        "import os, signal, threading\n"
        "from msgplatform.core.daemons import command\n"
        "command._LOOK_SECONDS = 0.0\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "done = threading.Event()\n"
        "def ask():\n"
        "    while not done.wait(0.005):\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "asking = threading.Thread(target=ask)\n"
        "asking.start()\n"
        "for _ in range(50):\n"
        "    command.Copies([], 0).run()\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "done.set()\n"
        "asking.join()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=600)
