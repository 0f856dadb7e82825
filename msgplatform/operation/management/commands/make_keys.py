from typing import Any

from django.core.management.base import BaseCommand

from msgplatform.core.secrets import key_files


class Command(BaseCommand):
    help = (
        "Make the files with SECRET_KEY and ENCRYPTION_KEY in STATE_DIR, unless they are there or "
        "configured. `up` does it, too."
    )
    requires_system_checks = []  # the checks refuse an installation without keys

    def handle(self, *args: Any, **options: Any) -> None:
        key_files.make_missing()
