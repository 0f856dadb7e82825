from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from msgplatform.core.characters import for_stdout
from msgplatform.core.errors import InvalidInput
from msgplatform.messages.filters import business_system
from notify.api.asyncapi.document import Selection
from notify.models import EventType


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
        try:
            system = business_system(options["system"], "system") if options["system"] else None
            text = Selection.of(EventType.objects.all(), system, options["event_type"]).document()
        except InvalidInput as error:
            option = error.field.replace("_", "-")
            raise CommandError(f"--{option}: {error}") from None
        self.stdout.write(for_stdout(text.decode()))
