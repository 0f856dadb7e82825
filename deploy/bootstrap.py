#!/usr/bin/env python3
"""Make .venv and install requirement files into it: `python3 deploy/bootstrap.py FILE …`.

Works on a bare machine: without root, without a compiler (the base requirements are wheels only)
and without ensurepip, which Debian leaves out. Nothing happens when nothing changed; what was
interrupted is repeated. Speaks on standard error only, one line a step.

A file whose lines carry hashes is installed with --require-hashes and without dependencies. One
named after `--try` may be left out where the platform has no wheel for it. Only the standard
library is used; the file parses under Python 3.6, so that an old one gets to the version check.
"""

# ruff: noqa: S603, S606, UP031, RUF005, E402 - it runs pip; old Pythons must reach the check
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".bootstrap.json"
MINIMUM = (3, 11)
# 3.11 is what the pins were made with; the others are best effort.
SUITABLE = ("python3.11", "python3.12", "python3.13")
VERSION = "import sys; print('%d.%d.%d' % sys.version_info[:3])"


def say(text):
    # type: (str) -> None
    print("bootstrap: " + text, file=sys.stderr, flush=True)


def hand_over():
    # type: () -> None
    """Run again under a suitable Python if there is one on PATH."""
    for name in SUITABLE:
        found = shutil.which(name)
        # A version manager's shim may be there without the version.
        if found and subprocess.call([found, "-c", ""], stderr=subprocess.DEVNULL) == 0:
            os.execv(found, [found] + sys.argv)
    say(
        "Python 3.11 or newer is needed, this is %d.%d. " % sys.version_info[:2]
        + "Install python3.11 (Debian 12, Ubuntu 24.04 and later have it) and repeat, "
        + "or name one: make demo PYTHON=/path/to/python3.11"
    )
    sys.exit(1)


if sys.version_info < MINIMUM:
    hand_over()

from pip_sources import Failed, environment, get_pip, has_pip, host_python, run


# -- what is installed ---------------------------------------------------------------------------
def digest(path: Path) -> str:
    """A hash over a requirement file and every file that it includes with -r or -c."""
    total, seen, waiting = hashlib.sha256(), set[Path](), [path.resolve()]
    while waiting:
        file = waiting.pop()
        if file in seen:
            continue
        seen.add(file)
        try:
            text = file.read_text(encoding="utf-8")
        except OSError as error:
            raise Failed(f"{file} cannot be read: {error.strerror}.") from None
        total.update(f"{file.name}\0{text}\0".encode())
        included = re.findall(r"^\s*(?:-r|-c|--requirement|--constraint)[ =]*(\S+)", text, re.M)
        waiting += [(file.parent / name).resolve() for name in included]
    return total.hexdigest()


def python_version(python: Path) -> str:
    """'3.11.2', or '' when it cannot be run (as after an upgrade of the system)."""
    try:
        done = subprocess.run(
            [python, "-I", "-S", "-c", VERSION], capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return done.stdout.strip()


def read_stamp() -> dict[str, str]:
    """Requirement file → the hash that was installed; empty when .venv is not to be trusted."""
    try:
        stamp = json.loads(STAMP.read_text())
        # Scripts in a .venv carry its path, so a copied one is not the same.
        whole = stamp["venv"] == str(VENV) and stamp["python"] == python_version(PYTHON)
        return dict(stamp["files"]) if whole else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def write_stamp(files: dict[str, str]) -> None:
    stamp = {"venv": str(VENV), "python": python_version(PYTHON), "files": files}
    unfinished = STAMP.with_suffix(".new")
    unfinished.write_text(json.dumps(stamp, indent=1))
    unfinished.replace(STAMP)


def still_true(files: dict[str, str]) -> dict[str, str]:
    """Without the files that changed since: installing another one may have moved their pins."""
    present = {name: value for name, value in files.items() if (ROOT / name).exists()}
    return {name: value for name, value in present.items() if digest(ROOT / name) == value}


# -- steps ---------------------------------------------------------------------------------------
def make_venv() -> None:
    """A .venv with a Python that runs and with pip; an unusable one is replaced."""
    found = tuple(int(part) for part in python_version(PYTHON).split(".") if part)
    usable = (VENV / "pyvenv.cfg").exists() and found >= MINIMUM
    if not usable:
        if importlib.util.find_spec("venv") is None:
            raise Failed("Python's venv is missing. To repair it: apt-get install python3-venv")
        if VENV.exists() and any(VENV.iterdir()) and not (VENV / "bin").exists():
            raise Failed(f"{VENV} is not a virtual environment; move it away and repeat.")
        say(f"making .venv with Python {python_version(Path(host_python()))}")
        shutil.rmtree(VENV, ignore_errors=True)
        wrong = run(host_python(), "-I", "-m", "venv", "--without-pip", VENV)
        if wrong:
            raise Failed(f"{VENV} could not be made: {wrong}")
    if not usable or not has_pip(PYTHON):
        say(f"pip comes from {get_pip(PYTHON)}")


class NoWheel(Failed):
    """This platform has no wheel of a package."""


def install(path: Path) -> None:
    """Install one requirement file. Raises Failed, or NoWheel."""
    text = path.read_text(encoding="utf-8")
    hashed = ["--require-hashes", "--no-deps"] if "--hash=" in text else []
    command = [str(PYTHON), "-I", "-m", "pip", "install", "-qq", "--progress-bar=off", *hashed]
    say(f"installing {path.name}")
    began = time.monotonic()
    done = subprocess.run(
        [*command, "-r", str(path)],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        close_fds=False,  # pip keeps the lock, should this process be killed
    )
    if done.returncode:
        missing = "No matching distribution found" in done.stdout
        raise (NoWheel if missing else Failed)(
            f"{path.name} could not be installed. pip says:\n{done.stdout.strip()}"
        )
    say(f"{path.name} is installed ({time.monotonic() - began:.0f} s)")


def bootstrap(needed: list[str], tried: list[str]) -> None:
    wanted = {name: digest(ROOT / name) for name in [*needed, *tried]}
    if wanted.items() <= read_stamp().items():
        return
    make_venv()
    installed = still_true(read_stamp())
    for name, value in wanted.items():
        if installed.get(name) == value:
            continue
        installed.pop(name, None)
        write_stamp(installed)  # an interrupted installation is repeated
        try:
            install(ROOT / name)
        except NoWheel as error:
            if name in needed:
                raise
            say(f"{error}\nThe rest works without it.")
            continue
        installed = still_true({**installed, name: value})
        write_stamp(installed)


def lock(folder: int) -> None:
    """Two at once would fill the same .venv; the lock ends with the last process that holds it."""
    os.set_inheritable(folder, True)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("waiting for another bootstrap of this folder")
        fcntl.flock(folder, fcntl.LOCK_EX)


def main(arguments: list[str]) -> int:
    split = arguments.index("--try") if "--try" in arguments else len(arguments)
    needed, tried = arguments[:split], arguments[split + 1 :]
    if not needed + tried:
        say("name a requirement file, for example requirements-base.txt.")
        return 2
    folder = os.open(ROOT, os.O_RDONLY)
    try:
        lock(folder)
        bootstrap(needed, tried)
    except Failed as error:
        say(str(error))
        return 1
    except OSError as error:
        say(f"{error.filename or ROOT}: {error.strerror}.")
        return 1
    finally:
        os.close(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
