from gateway.forwarder.forwarder import Forwarder
from msgplatform.core.daemons.command import DaemonCommand


class Command(DaemonCommand):
    help = "SMS: publishes Reports and MOs to the systems that own them."
    worker_class = Forwarder
