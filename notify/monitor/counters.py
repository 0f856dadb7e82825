"""Counters of each subscription: per minute in the database, since the last flush in Redis.

The minutes are the truth of the statistics: added in the transaction that marks, by the database's
clock. The totals in Redis are for `/metrics` only: Prometheus takes a flush for a restart.

Subject 0 with the counter `accepted` is the business system itself, a positive subject is a
subscription. `accepted`, `delivered`, `failed` and `exhausted` are counted a second time for the
event type, whose subject is negative (`catalogue_subjects.py`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from http import HTTPStatus
from itertools import pairwise
from typing import NamedTuple

from django.db.models import Sum

from msgplatform.core.connections import RedisError, work_redis
from msgplatform.core.data import sql
from msgplatform.core.flows.activity import WHOLE
from msgplatform.models import MinuteCounter
from notify.monitor.catalogue_subjects import CatalogueSubjects
from notify.orders import Result

FLOW = "notify"
ACCEPTED, EXHAUSTED = "accepted", "exhausted"
_TOTALS = "notify:totals"


# The prefix of counters of failed attempts by answer; an HTTP status or a class of error follows.
_ANSWER = "answer "
_STATUSES = frozenset(HTTPStatus)
# A percentile within a bucket that is longer, and whose end is more than so many times its begin,
# is shown as a range.
_MIN_WIDE_SECONDS = 60.0
_MAX_RATIO = 3.0
_ROUNDING = 1e-9


class Key(NamedTuple):
    biz: int
    subscription: int  # 0: the business system as such; negative: an event type
    name: str


Counts = Counter[Key]


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
    bounds: tuple[float, ...]  # seconds, ascending
    earlier: tuple[float, ...] = ()

    def counter(self, seconds: float) -> str:
        """The counter of the bucket that a duration belongs to."""
        return self._buckets[bisect_left(self.bounds, seconds)].name

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
    (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400,
     21600, 43200, 86400),
    earlier=(0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 600, 3600, 21600, 86400),
)  # fmt: skip
# One request, whatever its answer.
DURATION = Histogram(
    "duration",
    (0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 60),
    earlier=(0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60),
)


def answer(status: int, error: str) -> str:
    """The counter of attempts that failed with this answer. There are few of them, whatever a
    consumer answers: a status that is in no specification counts with its class, such as 4xx."""
    if error:
        return f"{_ANSWER}{error}"[:32]
    return f"{_ANSWER}{status if status in _STATUSES else f'{status // 100}xx'}"


def answer_of(name: str) -> str:
    """The answer that a counter stands for, '' for other counters."""
    return name.removeprefix(_ANSWER) if name.startswith(_ANSWER) else ""


def add(counts: Counts, now: datetime) -> None:
    """Add to the minute of `now`, in the transaction that the caller is in."""
    MinuteCounter.add(FLOW, counts, now)


def count_accepted(
    messages: Iterable[tuple[int, str]], event_types: CatalogueSubjects, now: datetime
) -> None:
    """Count messages, given business system and event type of each, in the transaction that splits
    them."""
    counts: Counts = Counter()
    for (biz, event_type), value in Counter(messages).items():
        counts[Key(biz, 0, ACCEPTED)] += value
        counts[Key(biz, event_types.subject(biz, event_type), ACCEPTED)] += value
    add(counts, now)


class Tally:
    """Counts results that were applied; `systems` is the business system of each subscription."""

    def __init__(self, systems: Mapping[int, int], event_types: CatalogueSubjects) -> None:
        self._systems, self._event_types = systems, event_types
        self.counts: Counts = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def count_delivered(self, result: Result, accepted_at: datetime) -> None:
        # Two machines have two clocks: a delivery before its acceptance took no time.
        latency = max(0.0, result.at + result.seconds - accepted_at.timestamp())
        self._count_twice(result, "delivered")
        self._observe(result, LATENCY, latency)
        self._observe(result, DURATION, result.seconds)

    def count_failed(self, results: Iterable[Result], exhausted_results: Iterable[Result]) -> None:
        for result in results:
            self._count_twice(result, "failed")
            self._count(result, answer(result.http_status, result.error))
            self._observe(result, DURATION, result.seconds)
        for result in exhausted_results:
            self._count_twice(result, EXHAUSTED)

    def _observe(self, result: Result, histogram: Histogram, seconds: float) -> None:
        self._count(result, histogram.counter(seconds))
        self.seconds[histogram.name] += seconds

    def _count_twice(self, result: Result, name: str) -> None:
        """Count for the subscription, and for the event type."""
        self._count(result, name)
        biz = self._systems.get(result.subscription, 0)
        self.counts[Key(biz, self._event_types.subject(biz, result.event_type), name)] += 1

    def _count(self, result: Result, name: str) -> None:
        biz = self._systems.get(result.subscription, 0)
        self.counts[Key(biz, result.subscription, name)] += 1


def add_totals(counts: Counts, seconds: Mapping[str, float] | None = None) -> None:
    """Add to the totals of all subscriptions; `seconds` by the name of a histogram.

    After the commit, so a process that dies in between leaves them a little low.
    """
    totals: Counter[str] = Counter()
    for key, value in counts.items():
        if key.subscription >= 0:  # else it is counted already
            totals[key.name] += value
    try:
        with work_redis().pipeline(transaction=False) as pipe:
            for name, value in totals.items():
                pipe.hincrby(_TOTALS, name, value)
            for name, duration in (seconds or {}).items():
                pipe.hincrbyfloat(_TOTALS, f"{name}_seconds", round(duration, 4))
            pipe.execute()
    except RedisError:
        return  # they are for /metrics only; the minutes in the database are complete


def totals() -> dict[str, float]:
    """The sums of `add_totals` since the last flush. Raises RedisError."""
    rows: dict[bytes, bytes] = work_redis().hgetall(_TOTALS)  # type: ignore[assignment]
    return {name.decode(): float(value) for name, value in rows.items()}


def last_hour(name: str) -> int:
    """The sum of one counter over all subscriptions in the last 60 minutes."""
    since = sql.now() - timedelta(hours=1)
    rows = MinuteCounter.objects.filter(WHOLE, minute__gte=since, flow=FLOW, name=name)
    return int(rows.aggregate(total=Sum("value"))["total"] or 0)
