import sys
from collections import Counter
from typing import Any

from django.core.management.base import BaseCommand

from msgplatform.core.characters import printable
from msgplatform.core.connections import briefly
from msgplatform.operation import doctor

_MARKS = {"ok": "ok  ", "warn": "warn", "bad": "BAD "}


class Command(BaseCommand):
    help = "Report what was found, what is missing, and the command that repairs it."
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        levels: Counter[str] = Counter()
        with briefly():
            for finding in doctor.examine():
                levels[finding.level] += 1
                self.stdout.write(f"{_MARKS[finding.level]}  {printable(str(finding.what))}")
                if finding.repair:
                    self.stdout.write(f"      → {printable(str(finding.repair))}")
        if bad := levels["bad"]:
            self.stdout.write(f"\n{bad} problem{'s' if bad > 1 else ''} found.")
            sys.exit(1)
        warnings = levels["warn"]
        also = f" {warnings} warning{'s' if warnings > 1 else ''}: see above." if warnings else ""
        self.stdout.write(f"\nNo problems found.{also}")
