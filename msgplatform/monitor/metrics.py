"""Prometheus text: the flows' own samples, the daemons' heartbeats, the platform's servers, and the
requests that web servers answered.

Everything is read from the database and Redis at the time of the request, so any web process
answers for the whole platform, and Prometheus scrapes no other process. `docs/metrics.md` lists
every metric.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from prometheus_client import generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric as Family,
)
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from msgplatform.core import alerts, cells, flows, logging
from msgplatform.core.connections import RedisError
from msgplatform.core.daemons import heartbeats
from msgplatform.core.errors import UNAVAILABLE
from msgplatform.core.flows.metric import PREFIX, Metric, Metrics, Sample
from msgplatform.core.flows.programs import program_roles, redis_roles
from msgplatform.core.tracing import exemplars, figures
from msgplatform.core.web import request_counts
from msgplatform.monitor.watch import servers

log = logging.get(__name__)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
METRICS = Metrics()
_FLOW_READABLE = METRICS.gauge(
    "flow_readable", "1 when the state of a flow can be read; 0: its metrics are missing", "flow"
)
_PROGRAM_UP = METRICS.gauge(
    "program_up", "1 while at least one program with this role runs, else 0", "role"
)
_PROCESS = ("role", "host", "pid")
_HEARTBEAT_AGE = METRICS.gauge(
    "daemon_heartbeat_age_seconds", "Since the last heartbeat of a process", *_PROCESS
)
_DONE = METRICS.counter("daemon_done", "Units of work that a process has done", *_PROCESS)
_FAILED = METRICS.counter(
    "daemon_failed",
    "Units of work that raised an error; refusals by others do not count",
    *_PROCESS,
)
_LAG = METRICS.gauge("daemon_lag_seconds", "Age of the oldest unit that a process has", *_PROCESS)
_DATABASE_UP = METRICS.gauge("database_up", "1 when the database answers")
_ALERTS = METRICS.gauge("alerts_open", "Alerts that are open; no sample for a kind of none", "kind")
_REDIS_UP = METRICS.gauge("redis_up", "1 when this Redis answers", "redis")
_REDIS_MEMORY = METRICS.gauge("redis_memory_bytes", "Memory that this Redis uses", "redis")
_REDIS_LIMIT = METRICS.gauge(
    "redis_memory_limit_bytes", "The most that this Redis may use; 0: it has no limit", "redis"
)
_DISK_FREE = METRICS.gauge(
    "disk_free_bytes", "Free on the disk with STATE_DIR of a machine that runs programs", "host"
)
_DISK = METRICS.gauge("disk_bytes", "Size of that disk", "host")


class _Platform(Collector):
    """Reads the samples for each answer: this process keeps none."""

    def collect(self) -> Iterator[Family]:
        """The samples by metric, as Prometheus wants them. In a cell each sample has the cell's
        label."""
        sources = (
            _flow_samples(), _daemon_samples(), _platform_samples(), request_counts.samples(),
            figures.samples(),
        )  # fmt: skip
        exemplar_by_bucket = exemplars.read()
        cell = [label] if (label := cells.own().label) else []
        samples_by_metric: dict[Metric, list[Sample]] = {}
        for sample in chain.from_iterable(sources):
            samples_by_metric.setdefault(sample.metric, []).append(sample)
        for metric, samples in samples_by_metric.items():
            names = [*metric.labels, *(["cell"] if cell else [])]
            if metric.kind == "histogram":
                yield _histogram(metric, names, samples, cell, exemplar_by_bucket)
                continue
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(PREFIX + metric.name, metric.help, labels=names)
            for sample in samples:
                values = [sample.labels[name] for name in metric.labels]
                family.add_metric([*values, *cell], sample.value)
            yield family


def _flow_samples() -> Iterator[Sample]:
    for flow in flows.all():
        is_readable = True
        try:
            yield from flow.health.metrics()
        except Exception:
            # An unreadable flow must not hide the metrics of the other flows.
            log.exception("metrics_failed", flow=flow.name)
            is_readable = False
        yield _FLOW_READABLE.of(is_readable, flow=flow.name)


def _daemon_samples() -> Iterator[Sample]:
    try:
        beats = heartbeats.alive()
    except RedisError:
        return
    # A sample for each role, so that a program without a process has the sample 0.
    running_roles = {beat.role for beat in beats}
    for role in sorted(program_roles()):
        yield _PROGRAM_UP.of(role in running_roles, role=role)
    for beat in beats:
        labels = {"role": beat.role, "host": beat.host, "pid": str(beat.pid)}
        yield _HEARTBEAT_AGE.of(max(0.0, time.time() - beat.at), **labels)
        yield _DONE.of(beat.done, **labels)
        yield _FAILED.of(beat.failed, **labels)
        if beat.lag is not None:
            yield _LAG.of(beat.lag, **labels)
    for host, beat in servers.disks(beats).items():
        yield _DISK_FREE.of(beat.disk_free_bytes, host=host)
        yield _DISK.of(beat.disk_bytes, host=host)


def _platform_samples() -> Iterator[Sample]:
    """The state that alerts report, because no alert can be stored while the database is away."""
    try:
        counts_by_kind = alerts.open_kinds()
    except UNAVAILABLE:
        counts_by_kind = None  # alerts are rows: the database does not answer
    yield _DATABASE_UP.of(counts_by_kind is not None)
    for kind, count in (counts_by_kind or {}).items():
        yield _ALERTS.of(count, kind=kind)
    errors = servers.unavailable()
    for role in redis_roles():
        yield _REDIS_UP.of(role.name not in errors, redis=role.name)
    for name, memory in servers.memory().items():
        yield _REDIS_MEMORY.of(memory.used, redis=name)
        yield _REDIS_LIMIT.of(memory.limit, redis=name)


def _histogram(
    metric: Metric, names: Sequence[str], samples: Iterable[Sample], cell: Sequence[str],
    exemplar_by_bucket: Mapping[exemplars.Key, exemplars.Exemplar],
) -> HistogramMetricFamily:  # fmt: skip
    buckets: dict[tuple[str, ...], list[tuple[str, float]]] = {}
    sums: dict[tuple[str, ...], float] = {}
    for sample in samples:
        labels = tuple(sample.labels[name] for name in metric.labels)
        if sample.bound:
            buckets.setdefault(labels, []).append((sample.bound, sample.value))
        else:
            sums[labels] = sample.value
    family = HistogramMetricFamily(PREFIX + metric.name, metric.help, labels=names)
    for labels, counts in buckets.items():
        pairs = [
            (bound, count, Exemplar({"trace_id": traced.trace_id}, traced.value, traced.at))
            if (traced := exemplar_by_bucket.get((metric.name, labels, bound)))
            else (bound, count)
            for bound, count in counts
        ]
        family.add_metric([*labels, *cell], pairs, sums.get(labels, 0.0))
    return family


def exposition() -> bytes:
    """The metrics of the whole platform in Prometheus' text format."""
    return generate_latest(_Platform())


def open_metrics() -> tuple[bytes, str]:
    """The same in the OpenMetrics format, which has exemplars; its content type."""
    content: bytes = openmetrics.generate_latest(_Platform())  # type: ignore[no-untyped-call]
    return content, openmetrics.CONTENT_TYPE_LATEST
