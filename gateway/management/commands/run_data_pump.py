from typing import Any

from gateway.pump.pump import Pump
from msgplatform.core.daemons.command import DaemonCommand


class Command(DaemonCommand):
    help = "SMS: moves what is finished into the archive."

    def worker(self, **options: Any) -> Pump:
        return Pump()
