import sys
from typing import Any

from django.core.management.base import BaseCommand

from msgplatform import doctor

_MARKS = {"ok": "ok  ", "warn": "warn", "bad": "BAD "}


class Command(BaseCommand):
    help = "Say what is found, what is missing, and the line that mends it."
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        bad = 0
        for finding in doctor.examine():
            bad += finding.level == "bad"
            self.stdout.write(f"{_MARKS[finding.level]}  {finding.what}")
            if finding.mend:
                self.stdout.write(f"      → {finding.mend}")
        if bad:
            self.stdout.write(f"\n{bad} things need mending.")
            sys.exit(1)
        self.stdout.write("\nNothing needs mending.")
