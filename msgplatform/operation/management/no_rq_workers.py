"""Refuses django-rq's commands.

The queues hold work orders for the platform's own daemons. An RQ worker would fail every order that
it takes, and the order's messages would wait until their lease is over. Even `rqstats` acts on
jobs: RQ cleans its registries whenever it counts them, and reads jobs with pickle.

`msgplatform` is before `django_rq` in INSTALLED_APPS, so these commands replace django-rq's.
"""

from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandError

from msgplatform.core import flows

_ASK_FOR_HELP = ("-h", "--help")


class Command(BaseCommand):
    """A command of django-rq that does nothing but say why, and what to use instead."""

    help = "Not used: the platform has no RQ workers. Run it to see what to use instead."
    requires_system_checks = ()

    def run_from_argv(self, argv: list[str]) -> None:
        """Ignores all arguments but the options for help."""
        super().run_from_argv(
            [*argv[:2], *(argument for argument in argv[2:] if argument in _ASK_FOR_HELP)]
        )

    def handle(self, *_args: Any, **_options: Any) -> NoReturn:
        commands = ", ".join(daemon.command for flow in flows.all() for daemon in flow.daemons)
        raise CommandError(
            "The platform has no RQ workers, so this command does nothing. The queues hold work "
            "orders that only the platform's daemons deliver; an RQ worker would fail them and "
            "delay their messages. Run everything with manage.py up, or single daemons: "
            f"{commands}. The console shows what is queued, under Queues; pause and resume "
            "subscriptions there. The database holds the times at which messages are due. Send "
            "messages over the REST API (/api/docs/). For commands of your own, use cron or a "
            "systemd timer."
        )
