from typing import Any

from django.core.management.base import CommandParser

from gateway.sender.sender import SmsSender
from msgplatform.core.daemons.command import DaemonCommand


class Command(DaemonCommand):
    help = "SMS: sends pending messages to the operator's gateways."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--gateway",
            action="append",
            default=[],
            metavar="NAME",
            help="serve only this gateway; may be repeated (default: all but those with a process "
            "of their own)",
        )

    def worker(self, **options: Any) -> SmsSender:
        return SmsSender(options["gateway"])
