from typing import Any

from msgplatform.core.daemons.command import DaemonCommand
from msgplatform.jobs.bulk import BulkRunner


class Command(DaemonCommand):
    help = "Runs the bulk jobs (resend, replay) of every flow."

    def worker(self, **options: Any) -> BulkRunner:
        return BulkRunner()
