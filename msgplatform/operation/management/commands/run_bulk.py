from typing import Any

from msgplatform.core.daemons.daemon import DaemonCommand
from msgplatform.jobs.bulk import BulkRunner


class Command(DaemonCommand):
    help = "Runs the bulk jobs (resend, replay) of every flow."

    def worker(self, **options: Any) -> BulkRunner:
        return BulkRunner()
