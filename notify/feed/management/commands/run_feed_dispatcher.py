from typing import Any

from django.core.management.base import CommandParser

from msgplatform.core.daemons.command import DaemonCommand
from notify.feed.dispatcher.dispatcher import Dispatcher
from notify.feed.models import EventQueue


class Command(DaemonCommand):
    help = "Feed: writes posts into the timelines of friends and followers."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--topic",
            action="append",
            choices=EventQueue.Topic.values,
            help="work on this topic only; can be repeated (default all)",
        )

    def worker(self, **options: Any) -> Dispatcher:
        return Dispatcher(options["topic"] or EventQueue.Topic.values)
