"""Whether the platform needs somebody: for the status on every page, and for the overview.

It is calm only when nothing is known to be wrong. What is lost, late, silent or unavailable has an
alert (`core/daemons/watch.py` and the flows' own), so that open alerts are most of the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from msgplatform.core import flows
from msgplatform.core.connections import RedisError
from msgplatform.core.daemons import heartbeats
from msgplatform.core.daemons.heartbeats import Heartbeat
from msgplatform.models import Alert


@dataclass(frozen=True)
class Condition:
    """`missing` are roles that no running daemon has."""

    alerts: int
    daemons: Sequence[Heartbeat]
    missing: Sequence[str]
    redis_problem: str = ""

    @property
    def number(self) -> int:
        """How many things need somebody."""
        return self.alerts + len(self.missing) + bool(self.redis_problem)


def open_alerts() -> QuerySet[Alert]:
    """Only the open ones have this key, so that its unique index holds no others."""
    return Alert.objects.filter(open_key__isnull=False)


def look() -> Condition:
    """One statement and one call of Redis. Works while Redis does not."""
    number = open_alerts().count()
    try:
        daemons = heartbeats.alive()
    except RedisError as error:
        # Nobody knows then which programs run.
        return Condition(number, [], [], str(error)[:200])
    missing = sorted(flows.roles() - {beat.role for beat in daemons})
    return Condition(number, daemons, missing)
