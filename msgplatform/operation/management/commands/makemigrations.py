"""Django's `makemigrations`, which also writes the line of each app's newest migration."""

from typing import Any

from django.core.management.base import CommandError
from django.core.management.commands import makemigrations

from msgplatform.core.data import migration_stages


class Command(makemigrations.Command):
    requires_system_checks = ()  # one of them refuses the lock that this command writes

    def handle(self, *app_labels: Any, **options: Any) -> None:
        super().handle(*app_labels, **options)
        if not options["dry_run"] and not options["check_changes"]:
            migration_stages.write_lock()
        if texts := list(migration_stages.faults()):
            raise CommandError("\n".join(texts))
