"""The programs that a flow brings along."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Daemon:
    """A management command that `up` keeps running."""

    command: str
    priority: int = 500  # supervisor's: lower starts first and stops last
    stop_seconds: int = 30  # within which it ends after SIGTERM
    help: str = ""
    arguments: Sequence[str] = ()  # of the command

    @property
    def name(self) -> str:
        """The name of its process and its log: the command and its arguments."""
        words = (word.lstrip("-").replace("=", "-") for word in self.arguments)
        return "-".join([self.command, *words])


# The platform's own program: it runs the bulk jobs of every flow.
BULK = Daemon("run_bulk", help="runs bulk jobs")
