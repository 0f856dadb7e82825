"""Strays: orders of dead senders. They go back into their queues, and are given back unsent.

A killed sender's queue has no owner, or a new owner, after OWNERSHIP_SECONDS. Its orders wait until
the last request that the sender can have begun is over. Stray messages are not sent, because
results of some may wait for the marker. The next sender gives all messages back *unsent*, behind
these results; the marker applies this to messages that still carry the claim, and the maker queues
them again.

A sender that only stood still begins no request some seconds after its last renewal
(`OrderClaimer.may_begin`), and learns with the next renewal which orders it has lost.
"""

import time
from collections.abc import Iterable, Mapping

from msgplatform.core import logging
from msgplatform.core.queues import jobs, owners
from notify import orders

log = logging.get(__name__)

# A sender that has lost Redis needs some seconds to come back: two connects, and a pause.
_LEAST_PATIENCE_SECONDS = 7.0
# Between two looks that are further apart a holder may have renewed its ownership.
_LOOK_SECONDS = 5.0


class Strays:
    """The strays that this process sees, and the time since which it sees each."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._seen_at: dict[tuple[str, str], float] = {}  # by queue and job id, monotonic
        self._looked_at = 0.0

    def take_back(self, timeouts: Mapping[str, float], in_hand: Iterable[jobs.Claimed]) -> set[str]:
        """Put the strays of these queues back, unless results of them may wait for the marker.
        Returns the queues that got strays back. `timeouts`: queue → seconds of a request."""
        now, own_ids = time.monotonic(), {claimed.id for claimed in in_hand}
        if now - self._looked_at > _LOOK_SECONDS:
            self._seen_at = {}
        self._looked_at = now
        strays = owners.strays(list(timeouts), self._owner, own_ids)
        self._seen_at = {stray: self._seen_at.get(stray, now) for stray in strays}
        lasting = [
            (queue, job_id)
            for (queue, job_id), seen_at in self._seen_at.items()
            if now - seen_at >= patience(timeouts[queue])
        ]
        if not lasting or orders.are_results_late():
            return set()
        taken_back = owners.take_back(lasting, self._owner)
        if taken_back:
            log.warning("orders_of_a_dead_sender_taken_back", orders=len(taken_back))
        return {queue for queue, _job_id in taken_back}


def patience(timeout: float) -> float:
    """Seconds from the first look at a stray until it goes back. The holder begins no request after
    its ownership; its last request must have ended, so that a message has one request at a time."""
    return max(_LEAST_PATIENCE_SECONDS, timeout)
