from crmsync.poller.poller import Poll
from msgplatform.core.daemons.command import DaemonCommand


class Command(DaemonCommand):
    help = "CRM sync: reads what changed at the sources and queues it for the CRMs."
    worker_class = Poll
