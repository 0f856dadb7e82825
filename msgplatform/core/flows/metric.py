"""Declarations of the metrics of `/metrics`, and their samples."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

PREFIX = "msgplatform_"
_NAME = re.compile(r"[a-z][a-z0-9_]*")
Kind = Literal["gauge", "counter", "histogram"]


@dataclass(frozen=True)
class Metric:
    """A declared metric; `docs/metrics.md` is generated from these. A label must have few values:
    each combination of values is a time series in Prometheus."""

    name: str  # without PREFIX, and without the `_total` of a counter
    help: str
    labels: tuple[str, ...] = ()
    kind: Kind = "gauge"

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name.endswith("_total"):
            raise ValueError(
                f"{self.name!r} is not a valid name of a metric: use a-z, 0-9 and _, no _total"
            )
        if not self.help:
            raise ValueError(f"{self.name} has no help text")

    @property
    def full_name(self) -> str:
        """The name in Prometheus, which adds _bucket, _sum and _count to a histogram's name."""
        return f"{PREFIX}{self.name}{'_total' * (self.kind == 'counter')}"

    def of(self, value: float, **labels: str) -> Sample:
        """A sample of a gauge or a counter, or the sum of a histogram."""
        if labels.keys() != set(self.labels):
            raise TypeError(f"{self.name} has the labels {self.labels}, not {tuple(labels)}")
        return Sample(self, value, labels)

    def bucket(self, bound: str, count: float, **labels: str) -> Sample:
        """The number of observations up to `bound`; the last bound of a histogram is "+Inf"."""
        return Sample(self, count, self.of(count, **labels).labels, bound)


class Sample(msgspec.Struct, frozen=True):
    """A value of a metric. `bound` is the upper bound of a histogram's bucket, else ''."""

    metric: Metric
    value: float
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    bound: str = ""

    @property
    def name(self) -> str:
        return self.metric.name


class Metrics:
    """The metrics of a flow, or of the platform itself, in the order of their declaration."""

    def __init__(self) -> None:
        self._declared: dict[str, Metric] = {}

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._declared.values())

    def gauge(self, name: str, help: str, *labels: str) -> Metric:
        return self._declare(Metric(name, help, labels))

    def counter(self, name: str, help: str, *labels: str) -> Metric:
        """Declare a counter, whose value never falls; `name` is without `_total`."""
        return self._declare(Metric(name, help, labels, "counter"))

    def histogram(self, name: str, help: str, *labels: str) -> Metric:
        return self._declare(Metric(name, help, labels, "histogram"))

    def _declare(self, metric: Metric) -> Metric:
        if metric.name in self._declared:
            raise ValueError(f"{metric.name} is declared twice")
        self._declared[metric.name] = metric
        return metric
