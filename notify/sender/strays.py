"""Orders of senders that are gone: back into their queues, to be given back by whoever claims them.

A killed sender's queue has no owner after OWNERSHIP_SECONDS, or another one. Its orders wait until
the last request that it can have begun is over. Nothing of them is sent as it is: the outcome of
some of their messages lies in the queue of the marker, perhaps. The next sender gives all of them
back *unsent*, behind these outcomes; the marker applies that to a message that still carries the
claim, and the maker queues it anew.

A sender that only stood still begins no request some seconds after its last renewal
(`OrderClaimer.may_begin`), and learns with the next one which orders it has no more.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from msgplatform.core import logging
from msgplatform.core.queues import jobs, owners
from notify import orders

log = logging.get(__name__)

# A sender that has lost Redis needs some seconds to come back: two connects, and a pause.
_LEAST_PATIENCE_SECONDS = 7.0
# Between two looks so far apart a holder may have renewed.
_LOOK_SECONDS = 5.0


class Strays:
    """The strays that this process sees, and since when."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._seen_at: dict[tuple[str, str], float] = {}  # by queue and job id, monotonic
        self._looked_at = 0.0

    def take_back(self, timeouts: Mapping[str, float], in_hand: Iterable[jobs.Claimed]) -> set[str]:
        """Put the strays of these queues back, unless results wait that may be theirs; returns the
        queues that have some back. `timeouts`: how long a request of a queue may take."""
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
    """Seconds between the first look at a stray and its way back: its holder begins no request
    after the ownership, and the last one must have ended, or two would be open at once."""
    return max(_LEAST_PATIENCE_SECONDS, timeout)
