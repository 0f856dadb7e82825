from typing import Any

from django.core.management.base import CommandError, CommandParser

from msgplatform.core.daemons.command import DaemonCommand
from notify.sender.sender import Sender


class Command(DaemonCommand):
    help = "Notify: sends queued messages to their consumers."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--subscription",
            type=int,
            action="append",
            default=[],
            metavar="ID",
            help="deliver only for this subscription; can be repeated (default: all subscriptions "
            "but those with a process of their own)",
        )
        parser.add_argument(
            "--window",
            type=int,
            default=1024,
            help="requests in flight at the same time, all subscriptions together (default 1024)",
        )

    def worker(self, **options: Any) -> Sender:
        if options["window"] < 1:
            raise CommandError("--window must be at least 1")
        return Sender(window=options["window"], only=options["subscription"])
