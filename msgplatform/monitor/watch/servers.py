"""Servers and machines: a silent or nearly full Redis, a nearly full disk, few nodes for ids; the
cluster of databases (Galera): programs that write to two servers, missing servers.

Each program's heartbeat has the free space of its machine's disk, for the process that looks.
"""

import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping

import msgspec
from django.db.models.functions import Now
from django.utils.translation import gettext_noop as _

from msgplatform.core import alerts
from msgplatform.core.alerts import Condition
from msgplatform.core.connections import RedisError
from msgplatform.core.daemons.heartbeats import Heartbeat
from msgplatform.core.data import id_nodes, server
from msgplatform.core.durations import lazy_age
from msgplatform.core.flows.programs import redis_roles
from msgplatform.core.lazy_text import lazy_message
from msgplatform.core.tracing import figures
from msgplatform.models import IdNode
from msgplatform.monitor.watch import DISK, GALERA, IDS, MEMORY, REDIS, TRACES, WRITERS, key

GIB = 1 << 30
_DATABASE = "database"  # the only subject of the alerts about the cluster
MIN_FREE = 0.10  # of a disk, and of a Redis's memory limit
# An open alert stays until a little more is free, so that it does not flap.
_FREE_AGAIN = 0.12
# A disk is also reported if it will be full within the first time at the pace of each third of the
# last hour: a new file, which is no pace, lies in two of them at most. An open alert stays while
# the disk will be full within the second time at the pace of the hour.
_FULL_SECONDS, _FULL_AGAIN_SECONDS = 12 * 3600.0, 18 * 3600.0
# The pace needs samples over the first time; samples older than the second time are dropped.
_MIN_TREND_SECONDS, _MAX_TREND_SECONDS = 1800.0, 3600.0
# A machine without heartbeats for this time is gone, such as a container that was replaced.
_GONE_SECONDS = 3600.0


class Memory(msgspec.Struct, frozen=True):
    """Bytes that a Redis uses, and its limit in bytes (0: none)."""

    used: int
    limit: int

    @property
    def free(self) -> float:
        """The free share of the limit; 1 without a limit."""
        return max(0.0, 1 - self.used / self.limit) if self.limit else 1.0


def unavailable() -> dict[str, RedisError]:
    """Name of each Redis that does not answer now → its error."""
    errors = {}
    for role in redis_roles():
        try:
            role.client().ping()
        except RedisError as error:
            errors[role.name] = error
    return errors


def memory() -> dict[str, Memory]:
    """Name of each Redis that answers → its memory."""
    memories = {}
    for role in redis_roles():
        try:
            info: Mapping[str, int] = role.client().info("memory")
        except RedisError:
            continue
        memories[role.name] = Memory(info["used_memory"], info["maxmemory"])
    return memories


def report_memory() -> None:
    """An alert for each Redis that is nearly full: a full one refuses writes."""
    variables = {role.name: role.variable for role in redis_roles()}
    memories = memory()
    conditions = [
        Condition.of(
            key(MEMORY, name),
            _("The Redis of %(variable)s is nearly full"),
            _(
                "It uses %(used)s of %(limit)s GiB (maxmemory). A full one refuses new work: "
                "raise its maxmemory, or see why so much waits."
            ),
            variable=variables[name],
            used=f"{usage.used / GIB:.1f}",
            limit=f"{usage.limit / GIB:.1f}",
        )
        for name, usage in memories.items()
        if usage.free < MIN_FREE
    ]
    undecided_keys = {
        key(MEMORY, name)
        for name in variables
        if name not in memories or memories[name].free < _FREE_AGAIN
    }
    alerts.reconcile([MEMORY], conditions, undecided_keys.__contains__)


def report_traces() -> None:
    """One alert while programs cannot export the spans of traces. Raises RedisError."""
    errors = figures.failures.read()
    conditions = []
    if errors:
        name = min(errors)
        condition = Condition.of(
            TRACES,
            _("Traces are not exported"),
            _("%(count)s programs, among them %(name)s: %(why)s. Messages go on."),
            count=len(errors), name=name, why=errors[name],
        )  # fmt: skip
        conditions.append(condition)
    alerts.reconcile([TRACES], conditions)


def report_id_nodes() -> None:
    """An alert if few nodes for ids are left. A program without a node cannot make messages."""
    count = IdNode.objects.filter(lease_until__gt=Now()).count()
    condition = Condition.of(
        IDS,
        _("Only a few more programs can make ids"),
        _(
            "%(count)s of %(all)s id nodes of the database are in use, one by each process "
            "that makes ids. A process without one accepts and splits nothing: run fewer "
            "processes, or move systems to another cell."
        ),
        count=count,
        all=id_nodes.NODES,
    )
    free_share = 1 - count / id_nodes.NODES
    conditions = [condition] if free_share < MIN_FREE else []
    alerts.reconcile([IDS], conditions, lambda _key: free_share < _FREE_AGAIN)


def disks(beats: Collection[Heartbeat]) -> dict[str, Heartbeat]:
    """Host → its latest heartbeat with the free space of the disk."""
    latest = sorted((beat for beat in beats if beat.disk_bytes), key=lambda beat: beat.at)
    return {beat.host: beat for beat in latest}


class Disks:
    """The free space of each machine's disk over the last hour."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[tuple[float, int]]] = {}  # host → (monotonic, bytes free)
        # Key of an open alert → monotonic time since which its machine has sent no heartbeat.
        self._silent_since: dict[str, float] = {}

    def forget(self) -> None:
        """Another process looks, so that machines may come back unnoticed by this one."""
        self._silent_since.clear()

    def report(self, beats: Collection[Heartbeat]) -> None:
        """An alert for each disk that is nearly full, or soon will be."""
        machines, now = disks(beats), time.monotonic()
        self._samples = {host: self._samples.get(host, deque()) for host in machines}
        for host, beat in machines.items():
            self._samples[host].append((now, beat.disk_free_bytes))
            while now - self._samples[host][0][0] > _MAX_TREND_SECONDS:
                self._samples[host].popleft()
            self._silent_since.pop(key(DISK, host), None)
        is_nearly_full = {
            key(DISK, host): beat.disk_free_bytes < _FREE_AGAIN * beat.disk_bytes
            or self.full_in(host, _FULL_AGAIN_SECONDS) is not None
            for host, beat in machines.items()
        }

        def is_undecided(alert_key: str) -> bool:
            """A machine without a heartbeat stays until it counts as gone."""
            if alert_key in is_nearly_full:
                return is_nearly_full[alert_key]
            return now - self._silent_since.setdefault(alert_key, now) < _GONE_SECONDS

        alerts.reconcile([DISK], list(self._conditions(machines)), is_undecided)

    def _conditions(self, machines: Mapping[str, Heartbeat]) -> Iterator[Condition]:
        for host, beat in machines.items():
            seconds = self.full_in(host, _FULL_SECONDS, parts=3)
            if beat.disk_free_bytes >= MIN_FREE * beat.disk_bytes and seconds is None:
                continue
            free, total = beat.disk_free_bytes / GIB, beat.disk_bytes / GIB
            text = lazy_message(
                "%(free)s of %(total)s GiB are free for STATE_DIR.",
                free=f"{free:.1f}", total=f"{total:.1f}",
            )  # fmt: skip
            if seconds is not None:
                text = lazy_message(
                    "%(text)s At the pace of the last hour it is full in about %(age)s.",
                    text=text, age=lazy_age(seconds),
                )  # fmt: skip
            subject = lazy_message("The disk of %(host)s is nearly full", host=host)
            yield Condition(key(DISK, host), subject, text)

    def full_in(self, host: str, within: float, parts: int = 1) -> float | None:
        """Seconds until this disk is full at the pace of the last hour; None if they are not less
        than `within` at the pace of each of the hour's equal parts."""
        samples = self._samples[host]
        start, span = samples[0][0], samples[-1][0] - samples[0][0]
        times = [start + span * part / parts for part in range(parts + 1)]
        frees = [min(samples, key=lambda sample: abs(sample[0] - at))[1] for at in times]
        loss = parts * min(frees[part] - frees[part + 1] for part in range(parts))
        if span < _MIN_TREND_SECONDS or frees[-1] * span >= within * loss:
            return None
        return frees[-1] * span / (frees[0] - frees[-1])


def report_unavailable(
    errors: Mapping[str, RedisError], last_names: Collection[str], only_name: str = ""
) -> None:
    """An alert for each server that two looks in a row found unavailable: a restart takes less than
    the time between two looks. `last_names` are of the last look. `only_name` is the server that
    this look asked, '' for all."""
    variables = {role.name: role.variable for role in redis_roles()}
    undecided_keys = {key(REDIS, name) for name in errors}
    if only_name:
        undecided_keys |= {key(REDIS, name) for name in variables.keys() - {only_name}}
    conditions = [
        Condition.of(
            key(REDIS, name),
            _("The Redis of %(variable)s does not answer"),
            _("%(error)s Programs that need it wait, and go on when it answers again."),
            variable=variables[name],
            error=str(error)[:500],
        )
        for name, error in errors.items()
        if name in last_names
    ]
    alerts.reconcile([REDIS], conditions, undecided_keys.__contains__)


class ClusterOfDatabases:
    """The state at the last look. An alert needs two looks in a row, because a change of the writer
    or a restart of a server takes less than the time between two looks."""

    def __init__(self) -> None:
        self._kinds_before: set[str] = set()

    def report(self) -> None:
        """Raise or resolve the alerts about two writers and about missing servers."""
        conditions: dict[str, Condition] = {}
        programs = server.programs_by_node()
        if len(programs) > 1:
            places = "; ".join(f"{node}: {', '.join(names)}" for node, names in programs.items())
            conditions[WRITERS] = Condition.of(
                key(WRITERS, _DATABASE),
                _("Programs write to several servers of the database"),
                _(
                    "%(places)s. Locks of rows are of one server, so two programs may do the "
                    "same work. Have every program connect to the one address of HAProxy."
                ),
                places=places[:1000],
            )
        state = server.cluster()
        if state is not None and state.size < state.expected:
            conditions[GALERA] = Condition.of(
                key(GALERA, _DATABASE),
                _("Servers of the database are missing"),
                _(
                    "The cluster has %(size)d of %(expected)d servers: it may stop when one "
                    "more fails. Start the others, and see their logs if they do not come back."
                ),
                size=state.size,
                expected=state.expected,
            )
        lasting_conditions = [conditions[kind] for kind in conditions.keys() & self._kinds_before]
        seen_keys = {condition.key for condition in conditions.values()}
        self._kinds_before = set(conditions)
        alerts.reconcile([WRITERS, GALERA], lasting_conditions, seen_keys.__contains__)
