from gateway.pump.pump import Pump
from msgplatform.core.daemons.command import DaemonCommand


class Command(DaemonCommand):
    help = "SMS: moves what is finished into the archive."
    worker_class = Pump
