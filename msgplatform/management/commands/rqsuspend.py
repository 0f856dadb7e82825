from msgplatform.management.no_rq_workers import RefusedCommand


class Command(RefusedCommand):
    instead = "To stop deliveries, pause a subscription in the console, or stop its daemons."
