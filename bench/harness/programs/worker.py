"""What programs have in common: options, Django, and when to stop."""

import argparse
import os
import signal
import time
from pathlib import Path

from bench.harness.programs.progress import Progress


class Stop:
    """True after SIGTERM."""

    def __init__(self) -> None:
        self._asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def __bool__(self) -> bool:
        return self._asked

    def wait(self) -> None:
        """Wait for SIGTERM when no work is left: one that ends by itself seems to have died."""
        while not self._asked:
            time.sleep(0.02)

    def _ask(self, *_: object) -> None:
        self._asked = True


def options(description: str) -> argparse.ArgumentParser:
    """A parser that knows `--progress`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--progress", type=progress, required=True)
    return parser


def progress(file: str) -> Progress:
    return Progress(Path(file))


def set_up_django() -> None:
    """Set Django up as in a daemon: without admin and pages."""
    os.environ["MSGPLATFORM_PROFILE"] = "daemon"
    import django

    django.setup()
