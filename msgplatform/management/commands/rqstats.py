from msgplatform.management.no_rq_workers import RefusedCommand


class Command(RefusedCommand):
    instead = "The console shows what is queued, under Queues."
