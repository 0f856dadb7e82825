"""The platform's condition, for the status on every page and for the overview.

The condition is calm only when no problem is known. Late work, silent programs and unavailable
servers have alerts (`monitor/watch` and the flows' own). Failures are counted where messages end
(`monitor/failure_store.py`), and alerts about failures are not counted in addition."""

from collections.abc import Mapping, Sequence
from weakref import WeakKeyDictionary

import msgspec
from django.db.models import QuerySet
from django.http import HttpRequest
from msgspec.structs import replace

from msgplatform import person_limits
from msgplatform.core import flows, lazy_text
from msgplatform.core.connections import RedisError
from msgplatform.core.daemons import exits, heartbeats
from msgplatform.core.daemons.heartbeats import Heartbeat
from msgplatform.core.errors import UNAVAILABLE
from msgplatform.core.flows.programs import program_roles
from msgplatform.doors.console.views.page import visible
from msgplatform.models import Alert
from msgplatform.monitor import failure_groups, runbooks
from msgplatform.monitor.watch import REDIS, SILENT, key, of_flows

_MAX_ALERTS = 1000  # maximum of open alerts that are read


class Condition(msgspec.Struct, frozen=True):
    """`alerts`: open alerts that nobody has acknowledged, without alerts about failures: `failures`
    counts their groups. `missing`: roles without a running daemon. `exits`: programs that end again
    and again, with the number of ends and the last words. A program or a Redis in `alert_keys` has
    an open alert, and counts as that alert."""

    alerts: int
    acknowledged: int  # open alerts that somebody has acknowledged
    failures: int
    daemons: Sequence[Heartbeat] = ()
    missing: Sequence[str] = ()
    redis_problem: str = ""
    exits: Mapping[str, str] = msgspec.field(default_factory=dict)
    alert_keys: frozenset[str] = frozenset()

    @property
    def releases(self) -> Sequence[str]:
        """The releases of the running programs: several during an update."""
        return list(heartbeats.roles_by_release(self.daemons))

    @property
    def problem_count(self) -> int:
        """The number of problems that nobody has acknowledged."""
        causes = {key(SILENT, role) for role in (*self.missing, *self.exits)}
        if self.redis_problem:
            causes.add(key(REDIS, "work"))
        return self.alerts + self.failures + len(causes - self.alert_keys)


_by_request: WeakKeyDictionary[HttpRequest, Condition] = WeakKeyDictionary()


def open_alerts() -> QuerySet[Alert]:
    """The open alerts, found by the unique index on `open_key`, which only they have."""
    return Alert.objects.filter(open_key__isnull=False)


def of_request(request: HttpRequest) -> Condition:
    """The condition, read once for each request. For a person who is limited to business systems it
    has their alerts; failures are counted where they are shown."""
    if request in _by_request:
        return _by_request[request]
    if (systems := person_limits.ids_of(request)) is None:
        condition = look()
    else:
        rows = runbooks.of_systems(open_alerts(), systems).order_by()
        times = list(rows.values_list("acknowledged_at", flat=True)[:_MAX_ALERTS])
        acknowledged_count = sum(at is not None for at in times)
        condition = Condition(len(times) - acknowledged_count, acknowledged_count, 0)
    _by_request[request] = condition
    return condition


def count_failures(request: HttpRequest) -> int:
    """The number of groups of failures in the flows that this person may see."""
    if (systems := person_limits.systems_of(request)) is not None:
        try:
            return sum(len(failure_groups.failures_of(flow, systems)) for flow in visible(request))
        except UNAVAILABLE:  # the page Failures reports that
            return 0
    names = [flow.name for flow in visible(request)]
    count = of_request(request).failures
    # For a person who may see every flow, the count of all flows is the answer.
    if not count or len(names) >= len(flows.all()):
        return count
    return failure_groups.count_groups(names)


def look() -> Condition:
    """The condition now, from two statements and two calls of Redis. Works without Redis."""
    failure_kinds = of_flows.failure_kinds()
    columns = ("kind", "open_key", "acknowledged_at")
    rows = open_alerts().order_by().values_list(*columns)[:_MAX_ALERTS]
    # True for an alert that somebody has acknowledged. Others about failures count as failures.
    marks = [at is not None for kind, _, at in rows if at is not None or kind not in failure_kinds]
    alert_keys = frozenset(str(open_key) for _kind, open_key, _at in rows)
    acknowledged_count = sum(marks)
    condition = Condition(
        len(marks) - acknowledged_count,
        acknowledged_count,
        failure_groups.count_groups(flow.name for flow in flows.all()),
        alert_keys=alert_keys,
    )
    try:
        daemons, exits_by_role = heartbeats.alive(), exits.of_platform()
    except RedisError as error:  # it is unknown which programs run
        return replace(condition, redis_problem=str(error)[:200])
    missing = sorted(program_roles() - {beat.role for beat in daemons})
    texts = {
        role: lazy_text.translate_text(end.text) for role, end in sorted(exits_by_role.items())
    }
    return replace(condition, daemons=daemons, missing=missing, exits=texts)
