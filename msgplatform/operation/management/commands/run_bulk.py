from msgplatform.core.daemons.command import DaemonCommand
from msgplatform.jobs.bulk import BulkRunner


class Command(DaemonCommand):
    help = "Runs the bulk jobs (resend, replay) of every flow."
    worker_class = BulkRunner
