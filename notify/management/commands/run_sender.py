from typing import Any

from msgplatform.core.daemon import DaemonCommand
from notify.sender import Sender


class Command(DaemonCommand):
    help = "Notify: delivers queued copies to their consumers."

    def worker(self, **options: Any) -> Sender:
        return Sender()
