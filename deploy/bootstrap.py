#!/usr/bin/env python3
"""Make .venv, and install sets of requirements.lock into it: `python3 deploy/bootstrap.py SET …`.

The lock says behind each package which sets it belongs to: `platform`, `mysql`, `embedded`, `dev` …
`--print SET` writes a set to standard output instead, as a requirement file.
Works on a bare machine: without root, without a compiler (the set `platform` is wheels only) and
without ensurepip, which Debian leaves out. Nothing happens when nothing changed; an interrupted
installation is repeated. Speaks on standard error only, one line a step.

Packages are installed with --require-hashes and without dependencies. A set named after `--try` may
be left out where the platform has no wheel for it. Only the standard library is used; the file
parses under Python 3.6, so that an old one gets to the version check.
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
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".bootstrap.json"
LOCK = ROOT / "requirements.lock"
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
def read_sets() -> dict[str, str]:
    """The lines of the lock by set, each as a requirement file. Raises Failed."""
    try:
        text = LOCK.read_text(encoding="utf-8")
    except OSError as error:
        raise Failed(f"{LOCK} cannot be read: {error.strerror}.") from None
    options = "".join(re.findall(r"^--.*\n", text, re.M))
    sets: dict[str, str] = {}
    for entry, names in re.findall(r"^(\w.*\n(?:    --.*\n)+)    # (.*)", text, re.M):
        for name in names.split():
            sets[name] = sets.get(name, options) + entry
    return sets


def choose(names: list[str]) -> dict[str, str]:
    sets = read_sets()
    for name in names:
        if name not in sets:
            raise Failed(f"{LOCK.name} has no set {name}, but: {', '.join(sorted(sets))}.")
    return {name: sets[name] for name in names}


def digest(lines: str) -> str:
    return hashlib.sha256(lines.encode()).hexdigest()


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
    """The hash of each installed set; empty when .venv is not to be trusted."""
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
        # Scripts in a .venv carry its path, so a copied one is not the same.
        whole = stamp["venv"] == str(VENV) and stamp["python"] == python_version(PYTHON)
        return dict(stamp["sets"]) if whole else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def write_stamp(sets: dict[str, str]) -> None:
    stamp = {"venv": str(VENV), "python": python_version(PYTHON), "sets": sets}
    unfinished = STAMP.with_suffix(".new")
    unfinished.write_text(json.dumps(stamp, indent=1), encoding="utf-8")
    unfinished.replace(STAMP)


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


def install(name: str, lines: str) -> None:
    """Install a set. Raises Failed, or NoWheel."""
    say(f"installing {name}")
    began = time.monotonic()
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as requirements:
        requirements.write(lines)
        requirements.flush()
        done = subprocess.run(
            [PYTHON, "-I", "-m", "pip", "install", "-qq", "--progress-bar=off", "--no-deps",
             "--require-hashes", "-r", requirements.name],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            close_fds=False,  # pip keeps the lock, should this process be killed
        )  # fmt: skip
    if done.returncode:
        missing = "No matching distribution found" in done.stdout
        raise (NoWheel if missing else Failed)(
            f"{name} could not be installed. pip says:\n{done.stdout.strip()}"
        )
    say(f"{name} is installed ({time.monotonic() - began:.0f} s)")


def bootstrap(needed: list[str], tried: list[str]) -> None:
    sets = choose([*needed, *tried])
    digests = {name: digest(lines) for name, lines in sets.items()}
    if digests.items() <= read_stamp().items():
        return
    make_venv()
    # A set that the lock has changed since may have lost its versions to another set.
    locked = {(name, digest(lines)) for name, lines in read_sets().items()}
    installed = dict(read_stamp().items() & locked)
    for name, lines in sets.items():
        if installed.get(name) == digests[name]:
            continue
        write_stamp(installed)  # an interrupted installation is repeated
        try:
            install(name, lines)
        except NoWheel as error:
            if name in needed:
                raise
            say(f"{error}\nThe rest works without it.")
            continue
        installed[name] = digests[name]
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
        say("name a set of requirements.lock, for example platform.")
        return 2
    folder = os.open(ROOT, os.O_RDONLY)
    try:
        if needed[:1] == ["--print"]:  # for an environment of its own
            print("".join(choose(needed[1:]).values()), end="")
            return 0
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
