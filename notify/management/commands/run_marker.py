from msgplatform.core.daemons.command import DaemonCommand
from notify.marker.marker import Marker


class Command(DaemonCommand):
    help = "Notify: writes back what became of each delivery."
    worker_class = Marker
