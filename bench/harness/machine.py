"""The machine that the figures were measured on, without its name."""

import os
import platform
import re
import statistics
import subprocess
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from msgplatform.core.servers.private_server import find_program, find_redis

_SYNCS = 100


def facts() -> dict[str, str]:
    """Facts by name, in the order in which one reads them."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    model = re.search(r"^model name\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.MULTILINE)
    processor = model[1] if model else platform.machine()
    name = re.search(r'^PRETTY_NAME="?([^"\n]+)', _read("/etc/os-release"), re.MULTILINE)
    distribution = name[1] if name else "unknown distribution"
    return {
        "processor": f"{processor}, {os.cpu_count()} cores",
        "memory": f"{memory:.0f} GB",
        "system": f"{platform.system()} {platform.release().split('-')[0]}, {distribution}",
        "disk": f"one write and fdatasync of 512 bytes: {_sync_ms():.2f} ms (median)",
        "Python": platform.python_version(),
        "MariaDB": _version(find_program("mariadbd", "mysqld")),
        "Redis": _version(find_redis()),
        "packages": ", ".join(
            f"{package} {version(package)}"
            for package in ("Django", "djangorestframework", "granian", "rq", "redis", "pycurl",
                         "mysqlclient", "requests")
        ),
    }  # fmt: skip


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _version(program: Path | None) -> str:
    if program is None:
        return "not installed"
    result = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"\d+\.\d+\.\d+", result.stdout)
    return found[0] if found else "unknown"


def _sync_ms() -> float:
    """What a commit has to wait for at least, on the disk where benches keep their databases."""
    times = []
    with tempfile.TemporaryFile() as file:
        for _ in range(_SYNCS):
            os.write(file.fileno(), b"x" * 512)
            begun = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - begun)
    return statistics.median(times) * 1000
