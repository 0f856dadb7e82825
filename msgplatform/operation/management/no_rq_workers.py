"""Refuses django-rq's commands.

The queues hold work orders for the platform's own daemons. An RQ worker would fail every order that
it takes, and the order's messages would wait until their lease is over. Even `rqstats` acts on
jobs: RQ cleans its registries whenever it counts them, and reads jobs with pickle.

`msgplatform` is before `django_rq` in INSTALLED_APPS, so these commands replace django-rq's.
"""

from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandError, CommandParser

from msgplatform.core import flows

_ASK_FOR_HELP = ("-h", "--help")


# Command → the sentence about its replacement. The daemons replace all other commands.
_INSTEAD = {
    "rqcron": "To run a command of your own regularly, use cron or a systemd timer.",
    "rqenqueue": "Send messages over the REST API; /api/docs/ describes it.",
    "rqresume": "To resume deliveries, resume a subscription in the console.",
    "rqscheduler": "Nothing is scheduled in RQ: the database holds the times at which messages are "
    "due.",
    "rqstats": "The console shows what is queued, under Queues.",
    "rqsuspend": "To stop deliveries, pause a subscription in the console, or stop its daemons.",
}


class Command(BaseCommand):
    """A command of django-rq that does nothing but say why, and what to use instead."""

    help = "Not used: the platform has no RQ workers. Run it to see what to use instead."
    requires_system_checks = ()
    instead = ""  # a sentence about what to use instead; '' names the daemons

    def run_from_argv(self, argv: list[str]) -> None:
        """Ignores all arguments but the options for help."""
        self.instead = _INSTEAD.get(argv[1], "")
        super().run_from_argv(
            [*argv[:2], *(argument for argument in argv[2:] if argument in _ASK_FOR_HELP)]
        )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("args", nargs="*", help="ignored")

    def handle(self, *_args: Any, **_options: Any) -> NoReturn:
        commands = ", ".join(daemon.command for flow in flows.all() for daemon in flow.daemons)
        run_daemons = f"Run everything with manage.py up, or single daemons: {commands}."
        raise CommandError(
            "The platform has no RQ workers, so this command does nothing. The queues hold work "
            "orders that only the platform's daemons deliver; an RQ worker would fail them and "
            f"delay their messages. {self.instead or run_daemons}"
        )
