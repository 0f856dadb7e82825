from typing import Any

from crmsync.handler.handler import DataHandler
from msgplatform.core.daemons.command import DaemonCommand


class Command(DaemonCommand):
    help = "CRM sync: sends queued records to their CRMs."

    def worker(self, **options: Any) -> DataHandler:
        return DataHandler()
