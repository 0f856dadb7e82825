from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from msgplatform.core.errors import InvalidInput
from msgplatform.doors.api.access import keys
from msgplatform.models import AuditLog


class Command(BaseCommand):
    help = (
        "Make a key for the management API and print it, this once. By default it may do all that "
        "the API can, but for people and one person's data; it publishes nothing but tests."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="where it is used; the audit log shows it")
        parser.add_argument(
            "--scope",
            action="append",
            default=[],
            help="what it may do, such as manage:systems; repeat it for several (default: all but "
            "manage:people and manage:person-data)",
        )

        parser.add_argument(
            "--system",
            action="append",
            default=[],
            metavar="NAME",
            help="limit it to this business system: it sees and changes only what belongs to it; "
            "repeat it for several (default: no limit)",
        )

    def handle(
        self, *args: Any, name: str, scope: list[str], system: list[str], **options: Any
    ) -> None:
        # A key that lets people in, or erases a person's data, is made on purpose only.
        scopes = scope or [
            scope_name
            for scope_name in keys.management_scopes()
            if scope_name not in keys.SUPERUSER_SCOPES
        ]
        try:
            with transaction.atomic():
                key, plain = keys.create(None, name, scopes, system_names=system)
                AuditLog.record(
                    "manage.py management_key", "api_key_created", str(key),
                    scopes=key.scopes, systems=key.systems,
                )  # fmt: skip
        except InvalidInput as error:
            raise CommandError(str(error)) from None
        self.stdout.write(plain)
