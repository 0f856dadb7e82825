import json
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from msgplatform.core.characters import for_stdout
from msgplatform.doors.api.management.platform_file import json_schema
from msgplatform.setup.platform_file import exporting


class Command(BaseCommand):
    help = (
        "Write the platform file of what there is, for manage.py apply. It has no secrets and no "
        "API keys."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--section", action="append", default=[], metavar="NAME",
            help="only this section, such as subscriptions; repeat it for several",
        )  # fmt: skip
        parser.add_argument(
            "--system", action="append", default=[], metavar="NAME",
            help="only what belongs to this business system; repeat it for several",
        )  # fmt: skip
        parser.add_argument(
            "--references", action="store_true",
            help="write a reference for each secret, so that the file can be applied to an empty "
            "platform; without it they are comments",
        )  # fmt: skip
        parser.add_argument(
            "--schema", action="store_true",
            help="write the JSON Schema of platform files instead, for editors",
        )  # fmt: skip

    def handle(self, *args: Any, **options: Any) -> None:
        if options["schema"]:
            self.stdout.write(for_stdout(json.dumps(json_schema(), indent=2, ensure_ascii=False)))
            return
        exporting.check_names(options["section"], options["system"])
        for line in exporting.export(options["section"], options["system"], options["references"]):
            self.stdout.write(for_stdout(line))
