from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from msgplatform.core.errors import UNAVAILABLE, PlatformError
from msgplatform.operation.backup import backup


class Command(BaseCommand):
    help = (
        "Write a backup into a new folder while the platform runs: databases, SMS Redis, list of "
        "erasures. It is checked; `restore` brings it back (docs/backup.md)."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("folder", type=Path, help="a new folder")
        parser.add_argument(
            "--keys", type=Path, metavar="FOLDER", help="write the keys, too, into this new folder"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            backup.make(options["folder"], options["keys"], self.stdout.write)
        except (PlatformError, OSError, *UNAVAILABLE) as error:
            raise CommandError(f"There is no backup: {error}") from error
        self.stdout.write(f"The backup is whole: {options['folder']}")
