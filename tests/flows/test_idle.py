"""The whole platform under `manage.py up`, with nothing to do."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from msgplatform.core.servers.private_server import free_port
from tests.cluster import ROOT

LIMIT_BYTES = 1150 << 20
EXPECTED = {
    *("msgplatform.web", "run_bulk", "supervisord", "redis"),
    *("run_maker", "run_sender", "run_marker", "run_archiver"),
    *("run_sms_sender", "run_sms_receiver", "run_report_forwarder", "run_data_pump"),
    *("run_sync_poller", "run_sync_handler", "run_feed_dispatcher", "run_feed_cleaner"),
}
# Of a processor in a second: less than a program that starts takes.
BUSY_SECONDS = 1.0


@pytest.fixture
def up() -> Iterator[subprocess.Popen[bytes]]:
    """`up` with the embedded Redis and SQLite, in a state directory of its own."""
    folder = Path(tempfile.mkdtemp(prefix="mp-up-"))
    port = free_port()
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in {"DATABASE_URL", "REDIS_URL", "SMS_REDIS_URL"}
    }
    environment |= {
        "STATE_DIR": str(folder),
        "PUBLIC_URL": f"http://127.0.0.1:{port}",
        "SMS_RECEIVER_PORT": str(free_port()),
    }
    with (folder / "up.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "up", "--port", str(port)],
            cwd=ROOT, env=environment, stdout=log, stderr=log,
        )  # fmt: skip
    _wait_until_ready(port, process, folder / "up.log")
    yield process
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=600) == 0
    shutil.rmtree(folder, ignore_errors=True)


def _wait_until_ready(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 600
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as answer:
                if answer.status == 200:
                    return
        except OSError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


def _family(up: subprocess.Popen[bytes]) -> dict[int, str]:
    """Pid → command line of `up` and all that it has started."""
    lines = {}
    for process in [psutil.Process(up.pid), *psutil.Process(up.pid).children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            lines[process.pid] = " ".join(process.cmdline())
    return lines


def _is_settled(lines: Mapping[int, str]) -> bool:
    """True if every program runs, and none is busy any more with its start."""
    if not all(any(name in line for line in lines.values()) for name in EXPECTED):
        return False
    with contextlib.suppress(psutil.NoSuchProcess):
        before = [sum(psutil.Process(pid).cpu_times()[:2]) for pid in lines]
        time.sleep(1.0)
        after = [sum(psutil.Process(pid).cpu_times()[:2]) for pid in lines]
        return sum(after) - sum(before) < BUSY_SECONDS
    return False


def test_an_idle_platform_is_small(up: subprocess.Popen[bytes]) -> None:
    # Programs start when the web server listens.
    deadline = time.monotonic() + 600
    while not _is_settled(lines := _family(up)):
        assert time.monotonic() < deadline, lines
    family = [psutil.Process(pid) for pid in lines]
    sizes = {lines[process.pid][-60:]: process.memory_full_info().pss for process in family}
    print({line: f"{size >> 20} MiB" for line, size in sizes.items()})
    print(f"sum of PSS: {sum(sizes.values()) >> 20} MiB")
    assert sum(sizes.values()) < LIMIT_BYTES
