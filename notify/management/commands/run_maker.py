from typing import Any

from django.core.management.base import CommandParser

from msgplatform.core.daemons.command import DaemonCommand
from notify.maker.maker import Maker


class Command(DaemonCommand):
    help = "Notify: splits accepted messages into deliveries and queues those that are due."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--subscription",
            type=int,
            action="append",
            default=[],
            metavar="ID",
            help="only queue for this subscription, and split nothing; can be repeated",
        )

    def worker(self, **options: Any) -> Maker:
        return Maker(only=options["subscription"])
