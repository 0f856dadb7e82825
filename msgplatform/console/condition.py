"""Whether the platform needs somebody: for the status on every page, and for the overview.

It is calm only when nothing is known to be wrong. What is late, silent or unavailable has an alert
(`core/daemons/watch.py` and the flows' own); failures are counted where messages end
(`monitor/failure_store.py`), and an alert about them is not counted a second time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from django.db.models import QuerySet
from django.http import HttpRequest

from msgplatform.console.views.page import visible
from msgplatform.core import flows, lazy_text
from msgplatform.core.connections import RedisError
from msgplatform.core.daemons import exits, heartbeats, watch
from msgplatform.core.daemons.heartbeats import Heartbeat
from msgplatform.models import Alert
from msgplatform.monitor import failure_store

_MOST = 1000  # open alerts that are looked at
_looked: WeakKeyDictionary[HttpRequest, Condition] = WeakKeyDictionary()


@dataclass(frozen=True)
class Condition:
    """`alerts` are open and nobody has acknowledged them; those about failures are not
    among them, but in `failures`, as groups. `missing` are roles that no running daemon has;
    `ended` says of programs that end again and again how often, and their last words."""

    alerts: int
    acknowledged: int  # open alerts that somebody has seen
    failures: int
    daemons: Sequence[Heartbeat]
    missing: Sequence[str]
    redis_problem: str = ""
    ended: Mapping[str, str] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """How many things need somebody."""
        silent = len({*self.missing, *self.ended})
        return self.alerts + self.failures + silent + bool(self.redis_problem)


def open_alerts() -> QuerySet[Alert]:
    """Only the open ones have this key, so that its unique index holds no others."""
    return Alert.objects.filter(open_key__isnull=False)


def of(request: HttpRequest) -> Condition:
    """The condition, looked up once for each request."""
    if request not in _looked:
        _looked[request] = look()
    return _looked[request]


def failures(request: HttpRequest) -> int:
    """How many groups of failures are in the flows that this person may see."""
    names = [flow.name for flow in visible(request)]
    found = of(request).failures
    # Who may see every flow needs no count of their own.
    return failure_store.number(names) if found and len(names) < len(flows.all()) else found


def look() -> Condition:
    """Two statements and two calls of Redis. Works while Redis does not."""
    every = flows.all()
    lost = {flow.health.failures_alert or f"{flow.name}.{watch.FAILURES}" for flow in every}
    rows = open_alerts().order_by().values_list("kind", "acknowledged_at")[:_MOST]
    states = [at is not None for kind, at in rows if at is not None or kind not in lost]
    seen = sum(states)
    failures = failure_store.number(flow.name for flow in every)
    try:
        daemons, ended = heartbeats.alive(), exits.of_platform()
    except RedisError as error:
        # Nobody knows then which programs run.
        return Condition(len(states) - seen, seen, failures, [], [], str(error)[:200])
    missing = sorted(flows.roles() - {beat.role for beat in daemons})
    texts = {role: lazy_text.translated(one.text) for role, one in sorted(ended.items())}
    return Condition(len(states) - seen, seen, failures, daemons, missing, ended=texts)
