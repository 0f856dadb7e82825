"""The programs of Notify, a turn each."""

import math
import time
from collections.abc import Callable

from notify.maker.maker import Maker
from notify.marker.marker import Marker
from notify.models import BizReceive
from notify.sender.sender import Sender


def old_maker() -> Maker:
    """One that has run, and has seen every breaker open, for long enough to end deliveries."""
    maker = Maker()
    maker.continuity.since = -math.inf
    ids = BizReceive.objects.values_list("id", flat=True)
    maker.continuity.open_since = dict.fromkeys(ids, -math.inf)
    return maker


def run_until(condition: Callable[[], bool]) -> None:
    """Maker, sender and marker take turns, as their loops would, until it is so."""
    maker, sender, marker = Maker(), Sender(), Marker()
    sender.start()
    deadline = time.monotonic() + 180
    try:
        while not condition():
            assert time.monotonic() < deadline, "it did not come"
            for worker in (maker, sender, marker):
                worker.turn()
    finally:
        sender.drain(time.monotonic() + 2)
        sender.stop()
        # It asks the database, and must not do so beside what comes next.
        sender.refresher.stop(60)
