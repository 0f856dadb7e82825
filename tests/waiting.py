"""How long a test waits between two looks at something that will be so."""

import time

MAX_SECONDS = 0.5


def pause(begun: float, first_seconds: float) -> None:
    """Sleep between two looks of a wait that has `begun` at this monotonic time: `first_seconds`,
    and later a twentieth of the wait so far, up to MAX_SECONDS. A look takes processors from the
    programs that are waited for."""
    waited = time.monotonic() - begun
    time.sleep(max(first_seconds, min(MAX_SECONDS, waited / 20)))
