"""The queues of each CRM: what is sent for the first time, what is tried again, what is dead.

Their names are those of the original platform. They hold no ":", at which RQ splits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from django.conf import settings

from crmsync import signals
from crmsync.orders import Order
from msgplatform.core.queues import jobs

PATTERN = r"crm-(main|retry|dead)-[a-z0-9][a-z0-9-]{0,39}"
# An order is useless when its lease is over; a little longer, as the handler's clock may be behind.
_SPARE_SECONDS = 60


class Queue:
    """Work orders of one CRM; all calls raise RedisError."""

    kind: ClassVar[str]

    def __init__(self, crm: str) -> None:
        self.name = f"crm-{self.kind}-{crm}"

    def put(self, orders: Sequence[Order]) -> None:
        """Queue all of the orders, or none."""
        jobs.put(self.name, orders, ttl=settings.CRM_LEASE_SECONDS + _SPARE_SECONDS)
        signals.HANDLER.send()

    def claim(self) -> jobs.Claimed | None:
        """Take the first order: a `jobs.Claimed` whose `data` is an Order. `jobs.done` ends the
        claim."""
        claimed, _ = jobs.claim_all([self.name], settings.CRM_LEASE_SECONDS, Order)
        return claimed[0] if claimed else None

    def depth(self) -> int:
        """How many orders wait, or are in a handler's hands."""
        return jobs.depths([self.name])[self.name]


class MainQueue(Queue):
    """Records that are sent for the first time."""

    kind = "main"


class RetryQueue(Queue):
    """Records that are tried again."""

    kind = "retry"


class DeadQueue(Queue):
    """A mirror of the dead records for people who look at queues. The database has the records, and
    nobody takes from this queue."""

    kind = "dead"

    def replace(self, parts: Sequence[Any]) -> None:
        """Replace everything in the queue with these parts, which are any JSON."""
        jobs.replace(self.name, parts)
