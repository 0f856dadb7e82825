"""Counters of each subscription: per minute in the database, since the last flush in Redis.

Statistics are made of the minutes, which the marking transaction adds by the database's clock. The
totals in Redis are for `/metrics` only; to Prometheus a flush looks like a restart.

Subject 0 with the counter `accepted` is the business system itself, a positive subject is a
subscription. `accepted`, `delivered`, `failed`, `exhausted` and `poison` are counted a second time
for the event type, whose subject is negative. Only event types of the catalogue have a subject
each: a business system may publish any event type, so the number of counters would have no
bound."""

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from http import HTTPStatus
from itertools import pairwise
from typing import NamedTuple

from msgplatform.core.connections import RedisError, numbers_of, work_redis
from msgplatform.core.daemons.snapshot import Snapshot
from msgplatform.core.tracing.context import trace_id_of
from msgplatform.core.tracing.exemplars import Observation
from msgplatform.models import MinuteCounter
from notify.models import EventType
from notify.orders import Result


class Bucket(NamedTuple):
    """A counter of durations longer than `low` and up to `high` seconds."""

    name: str
    low: float
    high: float

    @property
    def upper_bound(self) -> str:
        """`high`, as `/metrics` has it."""
        return "+Inf" if self.high == math.inf else str(float(self.high))


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

    def bucket(self, seconds: float) -> Bucket:
        """The bucket of a duration."""
        return self.buckets[bisect_left(self.bounds, seconds)]

    @cached_property
    def buckets(self) -> Sequence[Bucket]:
        """The buckets that are written, ascending."""
        earlier_lows = {high: low for low, high in pairwise((0.0, *self.earlier))}
        buckets = []
        for low, high in pairwise((0.0, *self.bounds)):
            name = f"{self.name}_le_{round(high * 1000)}ms"
            if earlier_lows.get(high, low) != low:
                name = f"{self.name}_gt_{low:g}_le_{high:g}s"
            buckets.append(Bucket(name, low, high))
        return [*buckets, Bucket(f"{self.name}_le_inf", self.bounds[-1], math.inf)]

    @cached_property
    def stored_buckets(self) -> Sequence[Bucket]:
        """The bucket of every counter that may be stored: earlier releases wrote others, too."""
        written_names = {bucket.name for bucket in self.buckets}
        earlier_buckets = [
            Bucket(f"{self.name}_le_{round(high * 1000)}ms", low, high)
            for low, high in pairwise((0.0, *self.earlier))
        ]
        return [*self.buckets, *(b for b in earlier_buckets if b.name not in written_names)]


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

FLOW = "notify"
ACCEPTED, EXHAUSTED, POISON = "accepted", "exhausted", "poison"
FILTERED = "filtered"  # messages that the filter of a subscription left out
_TOTALS = "notify:totals"
# The subject of the counters of all event types that the catalogue does not have.
OTHERS = -(2**62)
# Seconds until a new catalogue entry has a counter of its own.
REFRESH_SECONDS = 30.0
# The prefix of counters of failed attempts by answer. An HTTP status or an error class follows.
ANSWER = "answer "
_STATUSES = frozenset(HTTPStatus)


class Key(NamedTuple):
    biz: int
    subscription: int  # 0: the business system as such; negative: an event type
    name: str


Counts = Counter[Key]


class CatalogueSubjects(Snapshot[Mapping[tuple[int, str], int]]):
    """(system, event type) → subject of counters; system 0: a shared entry. A subject is the
    negative id of an entry, because subjects of subscriptions are positive."""

    def __init__(self) -> None:
        super().__init__({}, REFRESH_SECONDS)

    def load(self) -> Mapping[tuple[int, str], int]:
        rows = EventType.objects.order_by().values_list("owner", "name", "id")
        return {(owner, name): -pk for owner, name, pk in rows}

    def subject(self, biz: int, event_type: str) -> int:
        """The subject of an event type. A system's own entry goes before a shared entry."""
        subjects = self.known
        return subjects.get((biz, event_type)) or subjects.get((0, event_type), OTHERS)


def answer(status: int, error: str) -> str:
    """The counter of attempts that failed with this answer. The number of counters is bounded: a
    status that no specification has counts with its class, such as 4xx."""
    if error:
        return f"{ANSWER}{error}"[:32]
    return f"{ANSWER}{status if status in _STATUSES else f'{status // 100}xx'}"


def add(counts: Counts, now: datetime) -> None:
    """Add the counts to the minute of `now`, in the caller's transaction."""
    MinuteCounter.add(FLOW, counts, now)


def count_accepted(
    messages: Iterable[tuple[int, str]],
    event_types: CatalogueSubjects,
    now: datetime,
    filtered_counts: Mapping[Key, int],
) -> None:
    """Count messages, each given as (business system, event type), and the counts of filtered
    messages, in the transaction that splits."""
    counts: Counts = Counter(filtered_counts)
    for (biz, event_type), value in Counter(messages).items():
        counts[Key(biz, 0, ACCEPTED)] += value
        counts[Key(biz, event_types.subject(biz, event_type), ACCEPTED)] += value
    add(counts, now)


class Tally:
    """Counts applied results. `systems`: subscription → business system."""

    def __init__(self, systems: Mapping[int, int], event_types: CatalogueSubjects) -> None:
        self._systems, self._event_types = systems, event_types
        self.counts: Counts = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.traced: list[Observation] = []  # of results that are traced

    def count_delivered(self, result: Result, accepted_at: datetime) -> None:
        # Clocks of two machines differ, so a negative time counts as 0.
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
        bucket = histogram.bucket(seconds)
        self._count(result, bucket.name)
        self.seconds[histogram.name] += seconds
        if result.trace:
            end, trace_id = bucket.upper_bound, trace_id_of(result.trace)
            self.traced.append(Observation(histogram.metric, (), end, seconds, trace_id))

    def _count_twice(self, result: Result, name: str) -> None:
        self._count(result, name)
        biz = self._systems.get(result.subscription, 0)
        self.counts[Key(biz, self._event_types.subject(biz, result.event_type), name)] += 1

    def _count(self, result: Result, name: str) -> None:
        biz = self._systems.get(result.subscription, 0)
        self.counts[Key(biz, result.subscription, name)] += 1


def add_totals(counts: Counts, seconds: Mapping[str, float] | None = None) -> None:
    """Add to the totals of all subscriptions. `seconds`: name of a histogram → sum.

    Call it after the commit. A process that dies in between leaves the totals too low.
    """
    totals: Counter[str] = Counter()
    for key, value in counts.items():
        if key.subscription >= 0:  # a negative subject would count twice
            totals[key.name] += value
    try:
        with work_redis().pipeline(transaction=False) as pipe:
            for name, value in totals.items():
                pipe.hincrby(_TOTALS, name, value)
            for name, duration in (seconds or {}).items():
                pipe.hincrbyfloat(_TOTALS, f"{name}_seconds", round(duration, 4))
            pipe.execute()
    except RedisError:
        return  # totals are for /metrics only; the minutes in the database are complete


def totals() -> dict[str, float]:
    """The sums of `add_totals` since the last flush. Raises RedisError."""
    rows: dict[bytes, bytes] = work_redis().hgetall(_TOTALS)  # type: ignore[assignment]
    return numbers_of(rows)
