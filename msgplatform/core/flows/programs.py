"""The programs of a flow."""

from collections.abc import Sequence

import msgspec


class Daemon(msgspec.Struct, frozen=True):
    """A management command that `up` keeps running."""

    command: str
    priority: int = 500  # supervisor's: lower starts first and stops last
    stop_seconds: int = 30  # time to end after SIGTERM
    help: str = ""
    arguments: Sequence[str] = ()  # of the command

    @property
    def name(self) -> str:
        """The name of its process and its log: the command and its arguments."""
        words = (word.lstrip("-").replace("=", "-") for word in self.arguments)
        return "-".join([self.command, *words])


class Recovery(msgspec.Struct, frozen=True):
    """A management command that repairs a restored database while no program runs.

    In the arguments `{began_at}` is the time at which the backup began. `reads_work_redis`: the
    command reads the work Redis, which has newer facts than the backup, before the work Redis is
    emptied.
    """

    command: str
    arguments: Sequence[str] = ()
    reads_work_redis: bool = False


# The platform's own program: it runs the bulk jobs of every flow.
BULK = Daemon("run_bulk", help="runs bulk jobs")
