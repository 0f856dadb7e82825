from msgplatform.management.no_rq_workers import RefusedCommand


class Command(RefusedCommand):
    instead = "To resume deliveries, resume a subscription in the console."
