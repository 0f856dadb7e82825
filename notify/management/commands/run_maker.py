from typing import Any

from msgplatform.core.daemon import DaemonCommand
from notify.maker import Maker


class Command(DaemonCommand):
    help = "Notify: splits accepted messages into copies and queues those that are due."

    def worker(self, **options: Any) -> Maker:
        return Maker()
