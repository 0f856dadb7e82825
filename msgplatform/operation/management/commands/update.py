import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from msgplatform.core.errors import UNAVAILABLE, PlatformError
from msgplatform.operation.backup import backup
from msgplatform.operation.supervision.platform import supervisor_socket
from msgplatform.operation.supervision.run import lock_updates
from msgplatform.operation.supervision.update import Update


class Command(BaseCommand):
    help = (
        "Update the platform that `up` runs on this machine to the release of this command, while "
        "it works; `--back` goes back to the release before (docs/updating.md)."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--back", action="store_true", help="to the release before")
        parser.add_argument(
            "--without-backup", action="store_true", help="ask for no backup of the last 24 hours"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        state = Path(settings.STATE_DIR)
        run, mark = state / "run", state / backup.LAST
        update = Update(run, supervisor_socket(), self._say)
        try:
            with lock_updates(run) if run.is_dir() else nullcontext():
                if options["back"]:
                    update.go_back()
                elif options["without_backup"]:
                    update.go_forward(None)
                else:
                    update.go_forward(mark.stat().st_mtime if mark.exists() else 0.0)
        except (PlatformError, OSError, *UNAVAILABLE) as error:
            raise CommandError(str(error)) from error

    def _say(self, text: str) -> None:
        try:
            self.stdout.write(text)
        except OSError:
            # A reader that is gone breaks off no replacement, and is written to no more.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
