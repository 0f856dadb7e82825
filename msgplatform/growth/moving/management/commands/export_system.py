import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from msgplatform.core.errors import UNAVAILABLE, PlatformError
from msgplatform.growth.moving import system_file


class Command(BaseCommand):
    help = (
        "Write a business system to standard output, for import_system in another cell: its keys "
        "(hashes), consumers, subscriptions, event types, SMS accounts, landing pages and "
        "idempotency keys; no message. Secrets stay encrypted. Nothing is changed."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("system", help="its name, such as orders")

    def handle(self, *args: Any, system: str, **options: Any) -> None:
        try:
            count = system_file.export(system, sys.stdout.buffer, self.stderr.write)
        except (PlatformError, *UNAVAILABLE) as error:
            raise CommandError(str(error)) from None
        self.stderr.write(f"{system} is written, with {count} idempotency keys.")
