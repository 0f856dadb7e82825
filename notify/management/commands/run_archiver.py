from msgplatform.core.daemons.command import DaemonCommand
from notify.archive.archiver import Archiver


class Command(DaemonCommand):
    help = "Notify: moves final messages to the archive, deletes what was kept for long enough."
    worker_class = Archiver
