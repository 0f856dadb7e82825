from typing import Any

from msgplatform.bulk import BulkRunner
from msgplatform.core.daemon import DaemonCommand


class Command(DaemonCommand):
    help = "Works off bulk jobs (requeue, replay) of every flow."

    def worker(self, **options: Any) -> BulkRunner:
        return BulkRunner()
