"""Histograms of durations as counters: each bucket is a counter, so that histograms add up."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple


class Bucket(NamedTuple):
    """A counter of durations longer than `low` and up to `high` seconds."""

    name: str
    low: float
    high: float


@dataclass(frozen=True)
class Histogram:
    """Counters `<name>_le_<bound>ms`, and `<name>_le_inf` for durations above every bound.

    A counter counts durations above the bound before, so that only buckets with durations are
    written. `metrics.cumulative` makes the cumulative form for Prometheus.

    `earlier` are earlier bounds, whose counters may be stored. An earlier bucket that was wider
    keeps its name and its meaning; the bucket with the same end is now
    `<name>_gt_<low>_le_<bound>s`.
    """

    name: str
    metric: str  # of `/metrics`, without the prefix of all
    bounds: tuple[float, ...]  # seconds, ascending
    earlier: tuple[float, ...] = ()

    def counter(self, seconds: float) -> str:
        """The counter of the bucket that a duration belongs to."""
        return self.buckets[bisect_left(self.bounds, seconds)].name

    def bound(self, seconds: float) -> str:
        """The upper bound of the bucket of a duration, as `/metrics` has it."""
        high = self.buckets[bisect_left(self.bounds, seconds)].high
        return "+Inf" if high == math.inf else str(float(high))

    @cached_property
    def buckets(self) -> Sequence[Bucket]:
        """The buckets that are written, ascending."""
        earlier = {high: low for low, high in pairwise((0.0, *self.earlier))}
        buckets = []
        for low, high in pairwise((0.0, *self.bounds)):
            name = f"{self.name}_le_{round(high * 1000)}ms"
            if earlier.get(high, low) != low:
                name = f"{self.name}_gt_{low:g}_le_{high:g}s"
            buckets.append(Bucket(name, low, high))
        return [*buckets, Bucket(f"{self.name}_le_inf", self.bounds[-1], math.inf)]

    @cached_property
    def _earlier_buckets(self) -> Sequence[Bucket]:
        """The buckets of earlier releases that are no longer written."""
        written_names = {bucket.name for bucket in self.buckets}
        buckets = [
            Bucket(f"{self.name}_le_{round(high * 1000)}ms", low, high)
            for low, high in pairwise((0.0, *self.earlier))
        ]
        return [bucket for bucket in buckets if bucket.name not in written_names]

    @cached_property
    def stored_buckets(self) -> Sequence[Bucket]:
        """The bucket of every counter that may be stored."""
        return [*self.buckets, *self._earlier_buckets]


# Seconds from a message's acceptance to the end of the successful attempt. Retries take days.
LATENCY = Histogram(
    "latency",
    "notify_delivery_seconds",
    (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400,
     21600, 43200, 86400),
    earlier=(0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 600, 3600, 21600, 86400),
)  # fmt: skip
# Seconds of one request, whatever the answer.
DURATION = Histogram(
    "duration",
    "notify_request_seconds",
    (0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 60),
    earlier=(0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60),
)
