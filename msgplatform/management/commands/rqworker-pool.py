from msgplatform.management.no_rq_workers import RefusedCommand


class Command(RefusedCommand):
    pass
