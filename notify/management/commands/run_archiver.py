from typing import Any

from msgplatform.core.daemons.daemon import DaemonCommand
from notify.archive.archiver import Archiver


class Command(DaemonCommand):
    help = "Notify: moves what is final to the archive, and deletes what was kept long enough."

    def worker(self, **options: Any) -> Archiver:
        return Archiver()
