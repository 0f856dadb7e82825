"""Prometheus text: the flows' own samples, the daemons' heartbeats and the platform's servers.

Everything is read from the database and Redis at the time of the request, so any web process
answers for the whole platform, and no other process has to be scraped.

A sample's kind is `gauge`, `counter` or `histogram`. A histogram is several samples of one name:
one for each bucket, with its upper bound as the label `le` ("+Inf" last) and the number up to it as
the value, and one without `le`, the sum.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from msgplatform.core import alerts, flows, logging
from msgplatform.core.connections import RedisError
from msgplatform.core.daemons import heartbeats, watch
from msgplatform.core.errors import UNAVAILABLE

log = logging.get(__name__)

_PREFIX = "msgplatform_"


class _PlatformCollector(Collector):
    def collect(self) -> Iterator[Metric]:
        yield from _families(_flow_samples())
        yield from _families(_daemon_samples())
        yield from _families(_platform_samples())

    def describe(self) -> Iterable[Metric]:
        return []


def _flow_samples() -> Iterator[flows.Sample]:
    for flow in flows.all():
        up = 1.0
        try:
            yield from flow.metrics()
        except Exception:
            # One flow that cannot be read must not blind the others.
            log.exception("metrics_failed", flow=flow.name)
            up = 0.0
        yield flows.Sample("flow_readable", up, {"flow": flow.name}, "1 when its state can be read")


def _daemon_samples() -> Iterator[flows.Sample]:
    try:
        alive = heartbeats.alive()
    except RedisError:
        return
    # By role, so that a program that does not run at all has a sample too: 0.
    running = {beat.role for beat in alive}
    for role in sorted(flows.roles()):
        yield flows.Sample(
            "program_up", role in running, {"role": role}, "1 while one such program runs"
        )
    for beat in alive:
        labels = {"role": beat.role, "host": beat.host, "pid": str(beat.pid)}
        age = max(0.0, time.time() - beat.at)
        yield flows.Sample("daemon_heartbeat_age_seconds", age, labels, "Since its last heartbeat")
        yield flows.Sample("daemon_done", beat.done, labels, "Units done", "counter")
        yield flows.Sample("daemon_failed", beat.failed, labels, "Units failed", "counter")
        if beat.lag is not None:
            yield flows.Sample("daemon_lag_seconds", beat.lag, labels, "Age of its oldest unit")


def _platform_samples() -> Iterator[flows.Sample]:
    """The state that alerts report, for the time when no alert can be stored."""
    try:
        kinds = alerts.open_kinds()
    except UNAVAILABLE:
        kinds = None  # alerts are rows, so this is also whether the database answers
    yield flows.Sample("database_up", kinds is not None, help="1 when the database answers")
    for kind, count in (kinds or {}).items():
        yield flows.Sample("alerts_open", count, {"kind": kind}, "Alerts that are open, by kind")
    for name, answers in watch.redis_answers().items():
        yield flows.Sample("redis_up", answers, {"redis": name}, "1 when this Redis answers")


def _families(samples: Iterable[flows.Sample]) -> Iterator[Metric]:
    families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
    histograms: dict[str, list[flows.Sample]] = {}
    for sample in samples:
        if sample.kind == "histogram":  # its samples belong together: made when all are known
            histograms.setdefault(sample.name, []).append(sample)
            continue
        family = families.get(sample.name)
        if family is None:
            kind = CounterMetricFamily if sample.kind == "counter" else GaugeMetricFamily
            family = kind(_PREFIX + sample.name, sample.help, labels=list(sample.labels))
            families[sample.name] = family
        family.add_metric(list(sample.labels.values()), sample.value)
    yield from families.values()
    for of_one in histograms.values():
        yield _histogram(of_one)


def _histogram(samples: list[flows.Sample]) -> HistogramMetricFamily:
    buckets: dict[tuple[str, ...], list[tuple[str, float]]] = {}
    sums: dict[tuple[str, ...], float] = {}
    names = [name for name in samples[0].labels if name != "le"]
    for sample in samples:
        labels = tuple(sample.labels[name] for name in names)
        if "le" in sample.labels:
            buckets.setdefault(labels, []).append((sample.labels["le"], sample.value))
        else:
            sums[labels] = sample.value
    family = HistogramMetricFamily(_PREFIX + samples[0].name, samples[0].help, labels=names)
    for labels, found in buckets.items():
        family.add_metric(list(labels), found, sums.get(labels, 0.0))
    return family


def exposition() -> bytes:
    """The metrics of the whole platform in Prometheus' text format."""
    # A new one for each request: the samples are read now, and nothing is kept in this process.
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_PlatformCollector())
    return generate_latest(registry)
