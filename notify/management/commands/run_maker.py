from msgplatform.core.daemons.command import DaemonCommand
from notify.maker.maker import Maker


class Command(DaemonCommand):
    help = "Notify: splits accepted messages into deliveries and queues those that are due."
    worker_class = Maker
