"""`run_postman`: deliver what was posted."""

from msgplatform.core.daemons.daemon import Worker
from tests.letters.models import Letter


class Postman(Worker):
    role = "postman"

    def turn(self) -> bool:
        delivered = Letter.objects.filter(delivered=False).update(delivered=True)
        self.heartbeat.done += delivered
        return delivered > 0
