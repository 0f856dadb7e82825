from typing import Any

from msgplatform.core.daemons.command import DaemonCommand
from notify.marker.marker import Marker


class Command(DaemonCommand):
    help = "Notify: writes back what became of each delivery."

    def worker(self, **options: Any) -> Marker:
        return Marker()
