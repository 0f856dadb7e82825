from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from gateway.recovery import recover


class Command(BaseCommand):
    help = (
        "SMS: after a restore of the database, archive the texts and MOs again that it has lost, "
        "and publish their events again. They are taken from the SMS Redis, which keeps what was "
        "archived for SMS_KEEP_ARCHIVED_HOURS. It can be repeated while the platform runs."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="count, and change nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        total = recover(options["dry_run"])
        if options["dry_run"]:
            self.stdout.write("This is what would be done:")
        self.stdout.write(
            f"Archived again, with their events: {total.texts} texts, {total.mos} MOs"
        )
        self.stdout.write(f"Events published again of what is not archived yet: {total.waiting}")
