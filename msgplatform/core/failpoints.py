"""Named places at which a test may kill the process: MSGPLATFORM_FAILPOINT=name[:n[:signal]].

The process gets SIGKILL (or another signal: `STOP` freezes the process) when it passes the place
for the n-th time (default: 1). If the variable is not set, passing a place costs one comparison.
"""

import os
import signal

_name, _count, _signal = (os.environ.get("MSGPLATFORM_FAILPOINT", "") + "::").split(":")[:3]
_passes_left = int(_count or 1) if _name else 0  # passes until the signal


def failpoint(name: str) -> None:
    """Kill this process here if the environment says so."""
    global _passes_left
    if name != _name or not _passes_left:
        return
    _passes_left -= 1
    if not _passes_left:
        os.kill(os.getpid(), signal.Signals[f"SIG{_signal or 'KILL'}"])
