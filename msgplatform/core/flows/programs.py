"""The programs of flows, and the Redis servers that they use."""

from collections.abc import Sequence

import msgspec

from msgplatform.core import flows
from msgplatform.core.connections import WORK, RedisRole


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

    In the arguments `{began_at}` is the time at which the backup began. The command may read the
    work Redis, which has newer facts than the backup: it is emptied when all commands have
    succeeded.
    """

    command: str
    arguments: Sequence[str] = ()


# The platform's own program: it runs the bulk jobs of every flow.
BULK = Daemon("run_bulk", help="runs bulk jobs")


def program_roles() -> set[str]:
    """The roles, as in heartbeats, of the programs that should run."""
    programs = [BULK, *(daemon for flow in flows.all() for daemon in flow.daemons)]
    return {program.command.removeprefix("run_") for program in programs}


def redis_roles() -> list[RedisRole]:
    """Every Redis that the platform uses: the work Redis, then the servers of flows."""
    return [WORK, *(role for flow in flows.all() for role in flow.redis)]
