from typing import Any

from gateway.forwarder.forwarder import Forwarder
from msgplatform.core.daemons.command import DaemonCommand


class Command(DaemonCommand):
    help = "SMS: publishes Reports and MOs to the systems that own them."

    def worker(self, **options: Any) -> Forwarder:
        return Forwarder()
