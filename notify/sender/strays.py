"""Orders of senders that are gone: back into their queues, to be given back by whoever claims them.

A killed sender's queue has no owner after OWNERSHIP_SECONDS, or another one. Nothing of its orders
is sent as it is: the outcome of some of their messages lies in the queue of the marker, perhaps.
The next sender gives all of them back *unsent*, behind these outcomes. The marker takes that for a
message that still carries the claim, and the maker queues it anew: seconds after the death instead
of a lease.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

from msgplatform.core import logging
from msgplatform.core.queues import jobs, owners
from notify import orders

log = logging.get(__name__)

# A sender that only stood still has this long to renew its ownership.
PATIENCE_SECONDS = 3.0


class Strays:
    """The strays that this process sees, and since when."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._seen_at: dict[tuple[str, str], float] = {}  # by queue and job id, monotonic

    def take_back(self, queues: Collection[str], in_hand: Iterable[jobs.Claimed]) -> set[str]:
        """Put the strays of these queues back, unless results wait that may be theirs; returns the
        queues that have some back."""
        now, own_ids = time.monotonic(), {claimed.id for claimed in in_hand}
        strays = owners.strays(list(queues), self._owner, own_ids)
        self._seen_at = {stray: self._seen_at.get(stray, now) for stray in strays}
        lasting = [s for s, seen_at in self._seen_at.items() if now - seen_at >= PATIENCE_SECONDS]
        if not lasting or orders.are_results_late():
            return set()
        taken_back = owners.take_back(lasting, self._owner)
        if taken_back:
            log.warning("orders_of_a_dead_sender_taken_back", orders=len(taken_back))
        return {queue for queue, _job_id in taken_back}
