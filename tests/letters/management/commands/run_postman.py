from typing import Any

from msgplatform.core.daemons.command import DaemonCommand
from tests.letters.postman import Postman


class Command(DaemonCommand):
    help = "Letters: delivers."

    def worker(self, **options: Any) -> Postman:
        return Postman()
