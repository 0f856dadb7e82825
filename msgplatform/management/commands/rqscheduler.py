from msgplatform.management.no_rq_workers import RefusedCommand


class Command(RefusedCommand):
    instead = "Nothing is scheduled in RQ: the database holds the times at which messages are due."
