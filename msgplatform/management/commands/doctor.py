import sys
from typing import Any

from django.core.management.base import BaseCommand

from msgplatform import doctor

_MARKS = {"ok": "ok  ", "warn": "warn", "bad": "BAD "}


class Command(BaseCommand):
    help = "Report what was found, what is missing, and the command that repairs it."
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        bad = 0
        for finding in doctor.examine():
            bad += finding.level == "bad"
            self.stdout.write(f"{_MARKS[finding.level]}  {finding.what}")
            if finding.repair:
                self.stdout.write(f"      → {finding.repair}")
        if bad:
            self.stdout.write(f"\n{bad} problem{'s' if bad > 1 else ''} found.")
            sys.exit(1)
        self.stdout.write("\nNo problems found.")
