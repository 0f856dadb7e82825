from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from msgplatform.core.errors import InvalidInput
from msgplatform.models import Biz
from notify.api.asyncapi import document
from notify.api.asyncapi.document import Selection


class Command(BaseCommand):
    help = (
        "Write the catalogue of event types as an AsyncAPI 3.0 document (JSON), for people who "
        "write publishers and consumers."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--system", default="", metavar="NAME",
            help="only what this business system publishes: its own event types, and the shared "
            "ones",
        )  # fmt: skip
        parser.add_argument(
            "--event-type", default="", metavar="TYPE",
            help="only this event type, or all that begin so: 'order.*'",
        )  # fmt: skip

    def handle(self, *args: Any, **options: Any) -> None:
        system = options["system"]
        if system and not Biz.objects.filter(name=system).exists():
            raise CommandError(f"There is no business system {system}.")
        rows = document.of_type(
            document.visible_rows([system] if system else ()), options["event_type"]
        )
        try:
            text = Selection.of(rows, is_of_one_system=bool(system)).document()
        except InvalidInput as error:
            raise CommandError(f"{error} Use --event-type.") from None
        self.stdout.write(text.decode())
