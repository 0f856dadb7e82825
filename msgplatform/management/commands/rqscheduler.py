from msgplatform.management.no_rq_workers import RefusedCommand


class Command(RefusedCommand):
    instead = "Nothing is scheduled in RQ: times of sending are kept in the database."
