"""django-rq's commands are refused: what they act on is not theirs.

The queues hold work orders, which the platform's own daemons take and deliver. An RQ worker would
fail every one of them, and what it took would wait until its lease is over. Even `rqstats` acts on
jobs: RQ cleans its registries whenever it counts them, and reads them with pickle.

`msgplatform` is listed before `django_rq` in INSTALLED_APPS, so its commands win.
"""

from __future__ import annotations

from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandError, CommandParser

from msgplatform.core import flows


class RefusedCommand(BaseCommand):
    """A command of django-rq that says why it does nothing here, and what does."""

    help = "Not used: the platform has no RQ workers. Run it to read what to use instead."
    requires_system_checks = ()

    instead = ""  # a sentence: what to do instead

    def run_from_argv(self, argv: list[str]) -> None:
        """Whatever arguments it is given, it answers the same."""
        super().run_from_argv([*argv[:2], *(given for given in argv[2:] if given in _ASK_FOR_HELP)])

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("args", nargs="*", help="ignored")

    def handle(self, *_args: Any, **_options: Any) -> NoReturn:
        raise CommandError(
            "The platform has no RQ workers, so this command does nothing. The queues hold work "
            "orders that only the platform's daemons deliver; an RQ worker would fail them and "
            f"delay their messages. {self.instead or _daemons()}"
        )


_ASK_FOR_HELP = ("-h", "--help")


def _daemons() -> str:
    commands = [daemon.command for flow in flows.all() for daemon in flow.daemons]
    return f"Run everything with manage.py up, or single daemons: {', '.join(commands)}."
