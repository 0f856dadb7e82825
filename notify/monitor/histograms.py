"""Histograms of durations as counters: each bucket is one, so that they add up like all others."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

# A percentile within a bucket that is longer, and whose end is more than so many times its begin,
# is shown as a range.
_MIN_WIDE_SECONDS = 60.0
_MAX_RATIO = 3.0
_ROUNDING = 1e-9


class Bucket(NamedTuple):
    """A counter of durations longer than `low` and up to `high` seconds."""

    name: str
    low: float
    high: float


@dataclass(frozen=True)
class Histogram:
    """Counters `<name>_le_<bound>ms`, and `<name>_le_inf` for durations above every bound.

    Each counts durations above the bound before it, so that only buckets with a duration are
    written; `cumulative` gives them the form that Prometheus wants.

    `earlier` are the bounds of earlier releases, whose counters are still stored. One of them whose
    bucket was wider keeps its name and its meaning; the bucket that ends there now is
    `<name>_gt_<low>_le_<bound>s`.
    """

    name: str
    metric: str  # of `/metrics`, without the prefix of all
    bounds: tuple[float, ...]  # seconds, ascending
    earlier: tuple[float, ...] = ()

    def counter(self, seconds: float) -> str:
        """The counter of the bucket that a duration belongs to."""
        return self._buckets[bisect_left(self.bounds, seconds)].name

    def bound(self, seconds: float) -> str:
        """The upper bound of that bucket, as `/metrics` has it."""
        high = self._buckets[bisect_left(self.bounds, seconds)].high
        return "+Inf" if high == math.inf else str(float(high))

    @cached_property
    def _buckets(self) -> Sequence[Bucket]:
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
        written_names = {bucket.name for bucket in self._buckets}
        buckets = [
            Bucket(f"{self.name}_le_{round(high * 1000)}ms", low, high)
            for low, high in pairwise((0.0, *self.earlier))
        ]
        return [bucket for bucket in buckets if bucket.name not in written_names]

    @cached_property
    def names(self) -> Sequence[str]:
        """Every counter that may be stored."""
        return [bucket.name for bucket in (*self._buckets, *self._earlier_buckets)]

    def cumulative(self, counts: Mapping[str, float]) -> list[tuple[str, float]]:
        """Pairs (upper bound, count up to it), the last one for +Inf. An earlier, wider bucket
        counts at its upper bound."""
        by_end: defaultdict[float, float] = defaultdict(float)
        for bucket in (*self._buckets, *self._earlier_buckets):
            by_end[bucket.high] += counts.get(bucket.name, 0)
        total, pairs = 0.0, []
        for bucket in self._buckets:
            total += by_end[bucket.high]
            end = "+Inf" if bucket.high == math.inf else str(float(bucket.high))
            pairs.append((end, total))
        return pairs

    def percentile(self, counts: Mapping[str, int], share: float) -> float | None:
        """Seconds within which `share` (0 to 1) of all stayed, spread evenly within each bucket.

        None when nothing was counted; the last bound when it lies beyond that.
        """
        used_buckets = self._used_buckets(counts)
        if not used_buckets:
            return None
        rank, below = sum(counts[bucket.name] for bucket in used_buckets) * share, 0.0
        edges = {edge for _, *both in used_buckets for edge in both} - {math.inf}
        for low, high in pairwise(sorted(edges)):
            value = sum(
                counts[name] * (high - low) / (end - start)
                for name, start, end in used_buckets
                if start <= low and high <= end
            )
            if value and below + value >= rank - _ROUNDING:
                return low + (high - low) * min(1.0, (rank - below) / value)
            below += value
        return self.bounds[-1]

    def span(self, counts: Mapping[str, int], share: float) -> tuple[float, float] | None:
        """The bucket of a percentile where it is too wide for one number; else None. Its end is
        infinite for durations above every bound."""
        estimate = self.percentile(counts, share)
        if estimate is None:
            return None
        candidates = [b for b in self._used_buckets(counts) if b.low <= estimate <= b.high]
        low, high = max(((b.low, b.high) for b in candidates), key=lambda both: both[1] - both[0])
        is_wide = high >= _MIN_WIDE_SECONDS and high > _MAX_RATIO * low
        return (low, high) if is_wide else None

    def _used_buckets(self, counts: Mapping[str, int]) -> list[Bucket]:
        """The buckets in which something was counted."""
        every = (*self._buckets, *self._earlier_buckets)
        return [bucket for bucket in every if counts.get(bucket.name)]


# From the acceptance of a message to the end of the attempt that delivered it: retries take days.
LATENCY = Histogram(
    "latency",
    "notify_delivery_seconds",
    (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400,
     21600, 43200, 86400),
    earlier=(0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 600, 3600, 21600, 86400),
)  # fmt: skip
# One request, whatever its answer.
DURATION = Histogram(
    "duration",
    "notify_request_seconds",
    (0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 60),
    earlier=(0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60),
)
