"""Programs of the demo that print their address as their first line."""

import select
import subprocess
import sys

_FIRST_LINE_SECONDS = 300.0  # a busy machine starts a program slowly


def start_announced(module: str, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    """Start a program that prints its address as the first line; returns the process and this line.
    The program ends when its input is closed. Raises RuntimeError as `first_line`."""
    process = subprocess.Popen(  # noqa: S603 - our own command line
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        process_group=0,  # Ctrl-C reaches only the parent, which then closes its input
    )  # fmt: skip
    return process, first_line(process)


def first_line(process: subprocess.Popen[str]) -> str:
    """The first line that a program prints, by which it says that it has started. Raises
    RuntimeError if the program ends without a line, or is killed since it printed none in time."""
    assert process.stdout is not None  # noqa: S101
    why = "it ended"
    output = select.poll()  # select.select takes no descriptor above 1,023
    output.register(process.stdout, select.POLLIN)
    if not output.poll(_FIRST_LINE_SECONDS * 1000):
        why = f"it printed nothing within {_FIRST_LINE_SECONDS:g} s"
        process.kill()
    if line := process.stdout.readline().strip():
        return line
    raise RuntimeError(f"{process.args!r} did not start: {why}")
