"""Run a program that dies with its parent: `child_process.py [--parent PID] … -- program args`.

A killed `up` or test run must leave no processes, and has no process left to clean up: so the
kernel kills the children (PR_SET_PDEATHSIG in prctl(2), Linux; elsewhere the program merely
outlives a killed parent). This small process makes the setting, which survives exec, and then
becomes the program. A `preexec_fn` would run Python between fork and exec of a process with
threads.

The kernel watches the *thread* that started the child: start servers from a thread that stays, such
as the main thread. The setting is not inherited, so a program that forks workers sets it in each of
them (`die_with_parent`).

This file imports only the standard library, because it runs alone with `python -I -S`.
"""

import argparse
import ctypes
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

# The environment variable with the pid of a program, for the programs that it starts.
PARENT_VARIABLE = "MSGPLATFORM_PARENT"
_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
# A sender holds a socket for every transfer; the usual soft limit of 1024 is too low for that.
_OPEN_FILES = 65536
# A program that ran this long is started again at once.
_LONG_RUN_SECONDS = 5.0
_FIRST_PAUSE = 0.25


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when `parent` dies; exit now if `parent` is dead."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def command(program: Sequence[str], *options: str) -> list[str]:
    """The command line that runs `program` attached to the process that executes it."""
    return [sys.executable, "-I", "-S", __file__, *options, "--", *program]


def quick_exits(record: str, now: float) -> int:
    """The number of quick exits in a row, from the record of the last start."""
    try:
        start_text, count = record.split()
        seconds = now - float(start_text)
        # A negative time: the record was written before the machine's last start.
        return int(count) + 1 if 0 <= seconds < _LONG_RUN_SECONDS else 0
    except ValueError:
        return 0


def pause(exit_count: int, longest: float) -> float:
    """Seconds to wait before the next start: none after one quick exit, then 0.25, 0.5, 1 …"""
    if exit_count < 2:
        return 0.0
    return min(longest, _FIRST_PAUSE * 2.0 ** min(exit_count - 2, 30))


def pace(record_file: Path, longest: float) -> None:
    """Slow down a program that keeps exiting at once, but never give up starting it."""
    try:
        record = record_file.read_text(encoding="utf-8")
    except OSError:
        record = ""
    exit_count = quick_exits(record, time.monotonic())
    time.sleep(pause(exit_count, longest))
    try:
        record_file.write_text(f"{time.monotonic()} {exit_count}", encoding="utf-8")
    except OSError:  # a full disk: the next start does not know of this one
        time.sleep(longest)


def raise_open_files(count: int = _OPEN_FILES) -> int:
    """Raise the limit of open files; returns the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed_count = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed_count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed_count, hard))
    return allowed_count


def of_release(record: Path, program: Sequence[str]) -> list[str]:
    """The program with the interpreter and in the folder of the release that runs now."""
    release = json.loads(record.read_bytes())["current"]
    os.chdir(release["folder"])
    return [release["python"], *program[1:]]


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="child_process.py")
    parser.add_argument("--parent", type=int, help="the parent's pid")
    parser.add_argument("--pace", type=Path, help="folder for the record of the last start")
    parser.add_argument("--release", type=Path, help="file that names the release to run")
    parser.add_argument("--longest-pause", type=float, default=5.0)
    parser.add_argument("program", nargs="+")
    options = parser.parse_args(argv)
    # The pid that must be our parent: the given pid, else the parent's own, else the present one.
    die_with_parent(options.parent or int(os.environ.get(PARENT_VARIABLE) or os.getppid()))
    if options.pace:
        pace(options.pace / os.environ["SUPERVISOR_PROCESS_NAME"], options.longest_pause)
    raise_open_files()
    if options.release:
        options.program = of_release(options.release, options.program)
    os.environ[PARENT_VARIABLE] = str(os.getpid())
    try:
        os.execvp(options.program[0], options.program)  # noqa: S606 - that is the purpose
    except OSError as error:
        sys.exit(f"{options.program[0]} cannot be run: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
