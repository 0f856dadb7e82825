from crmsync.handler.handler import DataHandler
from msgplatform.core.daemons.command import DaemonCommand


class Command(DaemonCommand):
    help = "CRM sync: sends queued records to their CRMs."
    worker_class = DataHandler
