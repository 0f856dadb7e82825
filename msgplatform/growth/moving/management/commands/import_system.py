from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from msgplatform.core.errors import UNAVAILABLE, PlatformError
from msgplatform.growth.moving import importing


class Command(BaseCommand):
    help = (
        "Store a business system from a file of export_system. Its subscriptions are paused until "
        "the same command is given with --resume. The file is refused as a whole, or stored."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path)
        group = parser.add_mutually_exclusive_group()
        group.add_argument(
            "--resume", action="store_true",
            help="resume the subscriptions that the import of this file paused",
        )  # fmt: skip
        group.add_argument(
            "--proxy-lines", metavar="WHERE",
            help="store nothing: print the lines for exceptions.map of the proxy, which send the "
            "system's requests to this cell (here), or refuse them with 503 (nowhere)",
            choices=("here", "nowhere"),
        )  # fmt: skip

    def handle(self, *args: Any, file: Path, **options: Any) -> None:
        try:
            if options["proxy_lines"]:
                is_here = options["proxy_lines"] == "here"
                code = importing.code_for_proxy(file) if is_here else "moving"
                for name in importing.names_for_proxy(file):
                    self.stdout.write(f"{name} {code};")
            elif options["resume"]:
                count = importing.resume(file)
                self.stderr.write(f"Subscriptions resumed: {count}")
            else:
                count = importing.import_file(file, self.stderr.write)
                self.stderr.write(
                    f"The system is imported, with {count} idempotency keys. Its subscriptions are "
                    "paused: resume them with --resume when its requests come to this cell."
                )
        except (PlatformError, *UNAVAILABLE, OSError) as error:
            raise CommandError(str(error)) from None
