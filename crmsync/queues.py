"""The queues of each CRM: first attempts, retries, dead records.

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
        claims, _ = jobs.claim_all([self.name], settings.CRM_LEASE_SECONDS, Order)
        return claims[0] if claims else None

    def depth(self) -> int:
        """The number of orders that wait or are in flight."""
        return jobs.depths([self.name])[self.name]


class MainQueue(Queue):
    """Records that are sent for the first time."""

    kind = "main"


class RetryQueue(Queue):
    """Records that are tried again."""

    kind = "retry"


class DeadQueue(Queue):
    """A mirror of the dead records for people who look at queues. The database has the records, and
    no program takes from this queue."""

    kind = "dead"

    def replace(self, parts: Sequence[Any]) -> None:
        """Replace everything in the queue with these parts, which are any JSON."""
        jobs.replace(self.name, parts)
