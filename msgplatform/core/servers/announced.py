"""A program that says on its first line where it listens, as those of the demos do."""

from __future__ import annotations

import subprocess
import sys


def announced(module: str, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    """The running program, and its first line; it ends when its input is closed. Raises
    RuntimeError if it ends without one."""
    process = subprocess.Popen(  # noqa: S603 - our own command line
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        process_group=0,  # Ctrl-C reaches only who started it, and closes its input
    )  # fmt: skip
    assert process.stdout is not None  # noqa: S101
    line = process.stdout.readline().strip()
    if not line:
        raise RuntimeError(f"{' '.join([module, *arguments])} did not start")
    return process, line
