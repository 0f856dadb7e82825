from gateway.receiver.receiver import SmsReceiver
from msgplatform.core.daemons.command import DaemonCommand


class Command(DaemonCommand):
    help = "SMS: takes Reports, MOs and changes of users from the operator's gateways."
    worker_class = SmsReceiver
