from typing import Any

from msgplatform.core.daemons.daemon import DaemonCommand
from notify.archive.archiver import Archiver


class Command(DaemonCommand):
    help = "Notify: moves what is final to the archive, and lets go of what is kept long enough."

    def worker(self, **options: Any) -> Archiver:
        return Archiver()
