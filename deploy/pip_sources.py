"""Ways to get pip into a virtual environment that was made without it.

Debian's Python has no ensurepip unless python3-venv is installed, which needs root. Each way is
tried in turn; the last fetches Debian's own wheel of pip from the machine's sources, unpacked in
a temporary folder. Only the standard library is used.
"""

# ruff: noqa: S603 - it runs pip and apt, with command lines of its own
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

WHEELS = Path("/usr/share/python-wheels")  # Debian's and Fedora's place for pip's own wheel


class Failed(Exception):
    """A sentence for the person at the terminal."""


def run(*command: object, cwd: Path | None = None) -> str:
    """Run quietly; the last words of a command that failed, or ''."""
    try:
        done = subprocess.run(
            [str(part) for part in command],
            cwd=cwd,
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    said = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return (said[-1] if said else f"exit code {done.returncode}") if done.returncode else ""


def environment() -> dict[str, str]:
    """The environment without what would lead pip or Python out of .venv."""
    unwanted = {"PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_REQUIRE_HASHES", "PYTHONHOME"}
    unwanted |= {"PYTHONPATH", "PYTHONUSERBASE", "VIRTUAL_ENV"}
    kept = {name: value for name, value in os.environ.items() if name not in unwanted}
    return {**kept, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "LC_ALL": "C.UTF-8"}


def host_python() -> str:
    """The interpreter outside of any venv: .venv itself may be about to be replaced."""
    return getattr(sys, "_base_executable", sys.executable) or sys.executable


def by_ensurepip(python: Path) -> str:
    return run(python, "-I", "-m", "ensurepip", "--default-pip")


def by_host(python: Path) -> str:
    done = subprocess.run(
        [host_python(), "-m", "pip", "--version"], capture_output=True, text=True, check=False
    )
    version = re.match(r"pip (\d+)\.(\d+)", done.stdout)
    if not version:
        return "no pip"
    if tuple(map(int, version.groups())) < (22, 3):
        return f"pip {version[1]}.{version[2]} is older than 22.3"
    return run(host_python(), "-m", "pip", "--python", python, "install", "-q", "pip")


def by_wheel(python: Path, folder: Path = WHEELS) -> str:
    wheels = sorted(folder.glob("pip-*.whl"))
    if not wheels:
        return "none there"
    return run(python, "-I", wheels[-1] / "pip", "install", "-q", "--no-index", wheels[-1])


def by_apt(python: Path) -> str:
    """Debian's pip wheel, fetched from the machine's own sources without root or installing."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        return "not a Debian"
    with tempfile.TemporaryDirectory(prefix="bootstrap-") as name:
        folder = Path(name)
        for part in ("state/lists/partial", "cache/archives/partial", "log"):
            (folder / part).mkdir(parents=True)
        options = {
            "Dir::State": folder / "state",
            "Dir::State::status": "/var/lib/dpkg/status",
            "Dir::Cache": folder / "cache",
            "Dir::Log": folder / "log",
            "Acquire::Languages": "none",
            "Debug::NoLocking": "1",
            "APT::Sandbox::User": "root",  # as root: apt's own user may not enter the folder
        }
        apt = ["apt-get", "-q", *(f"-o{name}={value}" for name, value in options.items())]
        # One of several sources may be away; whether that matters is seen at the download.
        run(*apt, "update", cwd=folder)
        wrong = run(*apt, "download", "python3-pip-whl", cwd=folder)
        for package in folder.glob("*.deb"):
            wrong = run("dpkg-deb", "-x", package, folder / "tree")
        return wrong or by_wheel(python, folder / "tree" / WHEELS.relative_to("/"))


WAYS = (
    ("ensurepip", by_ensurepip),
    ("this Python's pip", by_host),
    (f"the wheel in {WHEELS}", by_wheel),
    ("Debian's pip wheel, by apt-get download", by_apt),
)


def has_pip(python: Path) -> bool:
    return not run(python, "-I", "-m", "pip", "--version")


def get_pip(python: Path) -> str:
    """Put pip beside `python`; the name of the way that did it. Raises Failed."""
    reasons = []
    for name, way in WAYS:
        wrong = way(python)
        if not wrong and has_pip(python):
            return name
        reasons.append(f"  {name}: {wrong or 'pip does not run'}")
    raise Failed(
        "pip could not be put into .venv:\n"
        + "\n".join(reasons)
        + "\nTo repair it: sudo apt-get install python3-venv"
        + "\n(elsewhere: the package that brings Python's venv and pip), then repeat."
    )
