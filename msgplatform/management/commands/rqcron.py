from msgplatform.management.no_rq_workers import RefusedCommand


class Command(RefusedCommand):
    instead = "To run a command of your own regularly, use cron or a systemd timer."
