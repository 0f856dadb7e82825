from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from msgplatform import env
from msgplatform.core.errors import UNAVAILABLE, PlatformError
from msgplatform.operation.backup import restore


class Command(BaseCommand):
    help = (
        "Load a backup into empty databases while no program runs, and repair what it cannot know. "
        "With OUTBOUND=off, on another machine, it is a rehearsal (docs/backup.md)."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("folder", type=Path, help="what `backup` has written")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            restore.restore(options["folder"], self.stdout.write)
        except (PlatformError, OSError, *UNAVAILABLE) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"Restored. Start every program, and ask: {env.COMMAND} doctor")
