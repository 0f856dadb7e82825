"""The queues of each CRM: what is sent for the first time, what is tried again, what is dead.

Names are those of the original, and hold no ":", which RQ splits on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from django.conf import settings

from crmsync import bells
from crmsync.orders import Order
from msgplatform.core.queues import jobs

PATTERN = r"crm-(main|retry|dead)-[a-z0-9][a-z0-9-]{0,39}"
# An order whose lease is over has no use; the handler's clock may be behind.
_SPARE_SECONDS = 60


class Queue:
    """Work orders of one CRM; all calls raise RedisError."""

    kind: ClassVar[str]

    def __init__(self, crm: str) -> None:
        self.name = f"crm-{self.kind}-{crm}"

    def put(self, orders: Sequence[Order]) -> None:
        """All of them, or none."""
        jobs.put(self.name, orders, ttl=settings.CRM_LEASE_SECONDS + _SPARE_SECONDS)
        bells.HANDLER.ring()

    def claim(self) -> jobs.Claimed | None:
        """Take the first order, which is a `jobs.Claimed` whose `data` is an Order; forget it with
        `jobs.done`."""
        claimed, _ = jobs.claim_all([self.name], settings.CRM_LEASE_SECONDS, Order)
        return claimed[0] if claimed else None

    def depth(self) -> int:
        """Orders that wait or are in somebody's hands."""
        return jobs.depths([self.name])[self.name]


class MainQueue(Queue):
    """What is sent for the first time."""

    kind = "main"


class RetryQueue(Queue):
    """What is tried again."""

    kind = "retry"


class DeadQueue(Queue):
    """A mirror of the dead records for whoever looks at queues; the truth is in the database, and
    nothing takes from it."""

    kind = "dead"

    def replace(self, parts: Sequence[Any]) -> None:
        """Hold these and nothing else: any JSON."""
        jobs.replace(self.name, parts)
