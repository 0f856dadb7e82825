"""Named places at which a test may kill the process: MSGPLATFORM_FAILPOINT=name[:n].

The process dies by SIGKILL when it passes the place for the n-th time (first by default). Off
unless the variable is set, and then it costs one comparison.
"""

from __future__ import annotations

import os
import signal

_name, _, _count = os.environ.get("MSGPLATFORM_FAILPOINT", "").partition(":")
_left = int(_count or 1) if _name else 0


def failpoint(name: str) -> None:
    """Die here if the environment asks for it."""
    global _left
    if name != _name or not _left:
        return
    _left -= 1
    if not _left:
        os.kill(os.getpid(), signal.SIGKILL)
