from msgplatform.management.no_rq_workers import RefusedCommand


class Command(RefusedCommand):
    instead = "Send messages over the REST API; /api/docs/ describes it."
