"""The pace of dispatchers, and the load of the database server and this machine, which it follows.

Dispatchers disturb nobody while nobody else uses the server. So latency and processors count only
while statements of other programs run. Dispatchers report their connections, so that the meter
knows the statements of dispatchers.

Additive increase, multiplicative decrease: dispatchers leave a busy server within seconds, and find
its spare capacity step by step.
"""

import math
import re
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import cycle, islice
from pathlib import Path

import msgspec
from django.db import connection

from msgplatform.core.data import engines
from notify.feed.models import FeedPace

Cause = FeedPace.Cause

# Other programs use the server when at least this number of their statements run at once, on
# average: one moment in ten. An idle platform is below.
MIN_STATEMENTS = 0.1
# Seconds of each measurement. Latency reacts quickly; statements are rare and need more samples;
# the latency at rest is the lowest of ten minutes.
LATENCY_SECONDS = 1.0
STATEMENTS_SECONDS = 3.0
BASELINE_SECONDS = 600.0
_STAT = Path("/proc/stat")
# The smallest statement: it looks up a missing primary key.
_PROBE = "SELECT active FROM feed_user WHERE biz_id = 0 AND uid = ''"

MAX_EVENTS = 100  # in a batch; larger batches are not faster, and others wait longer for them
MIN_EVENTS = 40  # smaller batches take as long: most of it goes into their statements and commit
# Changes of the share in each step of a second.
INCREASE = 0.02
INCREASE_ALONE = 0.1  # while nobody else uses the server
DECREASE = 0.5
_LOWER_COST_WEIGHT, _HIGHER_COST_WEIGHT = 0.1, 0.005  # of a batch with such a cost
_STRETCH_FACTOR = 1.25  # the factor by which batches grow or shrink from one turn to the next
FULL_SPEED = 0.95  # a share from here on counts as full speed
# Between this load and 1 the share does not change.
COMFORTABLE_LOAD = 0.7
_HOURS = re.compile(r"(\d{1,2})-(\d{1,2}):(\d*\.?\d+)")


# -- the load --------------------------------------------------------------------------------------
class Load(msgspec.Struct, frozen=True):
    """`latency` and `baseline` (the latency at rest): seconds. `statements`: average number of
    other programs' statements at once. `cpu`: part of this machine's processors at work, 0 to 1."""

    latency: float
    baseline: float
    statements: float
    cpu: float


class Targets(msgspec.Struct, frozen=True):
    """The figures that count as a load of 1; `latency` is a multiple of the baseline."""

    statements: float
    latency: float
    cpu: float


def load_of(load: Load, targets: Targets) -> tuple[float, str]:
    """The greatest ratio of a measured figure to its target, and its cause."""
    loads = [(load.statements / targets.statements, str(Cause.STATEMENTS))]
    if load.statements < MIN_STATEMENTS:
        return loads[0][0], str(Cause.NONE)
    if load.baseline:
        slowdown = load.latency / load.baseline
        loads.append((slowdown / targets.latency, str(Cause.LATENCY)))
    loads.append((load.cpu / targets.cpu, str(Cause.CPU)))
    return max(loads)


class _Sample(msgspec.Struct, frozen=True):
    at: float
    latency: float
    running: frozenset[int]  # connections


class Meter:
    """Takes samples and computes the load. For one thread, with its own connection."""

    def __init__(self, baseline: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        """`baseline`: the latency at rest from an earlier meter, in seconds; 0: unknown."""
        self._clock = clock
        self._samples: deque[_Sample] = deque()
        self._lows: deque[tuple[float, float]] = deque()  # (time, latency)
        if baseline:
            self._lows.append((clock(), baseline))
        self._ticks = _processor_ticks()

    def sample(self) -> None:
        """Ask the database: two short statements."""
        with connection.cursor() as cursor:
            start = time.perf_counter()
            cursor.execute(_PROBE)
            cursor.fetchall()
            latency = time.perf_counter() - start
        self.add(latency, engines.of().running_connections(connection))

    def add(self, latency: float, running: Collection[int]) -> None:
        now = self._clock()
        self._samples.append(_Sample(now, latency, frozenset(running)))
        while self._samples[0].at < now - STATEMENTS_SECONDS:
            self._samples.popleft()

    def load(self, own: Collection[int]) -> Load | None:
        """The load of the last seconds; None without a sample. `own`: the connections of all
        dispatchers."""
        now = self._clock()
        recent = [sample for sample in self._samples if sample.at >= now - STATEMENTS_SECONDS]
        if not recent:
            return None
        # Samples of an idle platform are further apart, so the last sample may be older.
        latencies = [sample.latency for sample in recent if sample.at >= now - LATENCY_SECONDS]
        # Not the median: batches of dispatchers slow others down for less than half of the time.
        latency = sorted(latencies or [recent[-1].latency])[len(latencies) * 3 // 4]
        statements = sum(len(sample.running.difference(own)) for sample in recent) / len(recent)
        self._lows.append((now, latency))
        while self._lows[0][0] < now - BASELINE_SECONDS:
            self._lows.popleft()
        baseline = min(low for _, low in self._lows)
        (idle_before, total_before), (idle, total) = self._ticks, _processor_ticks()
        self._ticks = idle, total
        cpu = 0.0  # the part of the processors at work since the last call; 0: unknown
        if total > total_before:
            cpu = max(0.0, 1 - (idle - idle_before) / (total - total_before))
        return Load(latency, baseline, statements, cpu)


def _processor_ticks() -> tuple[int, int]:
    """(idle, all) of all processors since the machine start."""
    with suppress(OSError, ValueError):
        # user nice system idle iowait irq softirq steal; the time of guests is in user already
        ticks = [int(word) for word in _STAT.read_text(encoding="utf-8").split(maxsplit=9)[1:9]]
        return ticks[3] + ticks[4], sum(ticks)
    return 0, 0


# -- the pace --------------------------------------------------------------------------------------
class Pace(msgspec.Struct, frozen=True):
    """At most `events` in a batch. `share`: the part of full speed, 0 to 1; 0 for a dispatcher that
    rests while others work."""

    events: int = MAX_EVENTS
    share: float = 1.0


class Effort:
    """The seconds that work takes at full speed, learned from undisturbed batches, and from others
    as long as there was none: after a start beside other programs.

    A pause follows from these seconds, not from the time that a batch took: on a busy machine a
    batch takes several times as long, and with pauses as long next to nothing would be done. When
    less than the share is done even without a pause, batches grow: a small batch mostly waits.
    """

    def __init__(self) -> None:
        self._cost = 0.0  # seconds for a unit of work; 0: not known yet
        self._is_certain = False
        self._stretch = 1.0

    def events(self, pace: Pace) -> int:
        """The size of a batch."""
        return min(MAX_EVENTS, round(pace.events * self._stretch))

    def learn(self, work: int, seconds: float, is_undisturbed: bool = True) -> None:
        if self._is_certain and not is_undisturbed:
            return
        self._is_certain = is_undisturbed
        # A batch that froze (a stopped process, a database that hangs) teaches no more than a slow
        # one: beside other programs nothing would teach the true cost again.
        cost = min(seconds / work, 2 * self._cost or math.inf)
        # Higher costs are learned slowly: when others begin to work, batches are slow for a moment
        # before the share falls.
        weight = _LOWER_COST_WEIGHT if cost < self._cost else _HIGHER_COST_WEIGHT
        self._cost += (cost - self._cost) * weight if self._cost else cost

    def pause(self, share: float, work: int, seconds: float) -> float:
        """Seconds to rest after work that took `seconds`. While the cost is not known, they depend
        on `seconds`."""
        planned_seconds = (min(seconds, work * self._cost) or seconds) / share
        is_late = seconds >= planned_seconds and share < FULL_SPEED
        factor = _STRETCH_FACTOR if is_late else 1 / _STRETCH_FACTOR
        self._stretch = min(MAX_EVENTS / MIN_EVENTS, max(1.0, self._stretch * factor))
        return max(0.0, planned_seconds - seconds)


def pace_of(share: float) -> Pace:
    """The pace of a share. A lower share has smaller batches, because others wait for a batch."""
    return Pace(max(MIN_EVENTS, round(MAX_EVENTS * share)), share)


def divide(share: float, dispatchers: Sequence[str], turn: int) -> tuple[tuple[str, ...], float]:
    """Choose the dispatchers at work so that all together do `share` of full speed; returns them
    and the share of each.

    As few as possible work: two dispatchers at the same time disturb others far more than one that
    works twice as much. They take turns, so that a frozen dispatcher delays nothing for long.
    """
    count = max(1, math.ceil(round(share * len(dispatchers), 6)))
    first = turn * count % max(1, len(dispatchers))
    at_work = tuple(islice(cycle(sorted(dispatchers)), first, first + count))
    return at_work, min(1.0, share * len(dispatchers) / count)


def next_share(
    share: float, load: float, min_share: float, max_share: float, is_alone: bool = False
) -> float:
    """The share one step later. `load` is 1 when the server is as busy as it should be at most.

    `max_share` goes before `min_share`, because a person has set it for these hours.
    """
    if load > 1:
        share *= DECREASE
    elif load < COMFORTABLE_LOAD:
        share += INCREASE_ALONE if is_alone else INCREASE
    return round(min(max_share, max(min_share, share)), 4)


# -- the largest share at some hours of the day ----------------------------------------------------
class HoursRule(msgspec.Struct, frozen=True):
    """`max_share` holds from `first` o'clock until before `end` o'clock, which may be past
    midnight."""

    first: int
    end: int
    max_share: float

    def holds(self, hour: int) -> bool:
        """True if the rule is about this hour, 0 to 23."""
        if self.first < self.end:
            return self.first <= hour < self.end
        return hour >= self.first or hour < self.end


def parse_hours(text: str) -> tuple[HoursRule, ...]:
    """Rules such as "19-23:0.3,0-6:1". Raises ValueError, naming the rule."""
    rules = []
    for rule in filter(None, map(str.strip, text.split(","))):
        match = _HOURS.fullmatch(rule)
        if match is None:
            raise ValueError(f"{rule!r} is not like 19-23:0.3")
        first, end, max_share = int(match[1]), int(match[2]), float(match[3])
        if first > 23 or end > 24 or first == end:
            raise ValueError(f"{rule!r}: hours go from 0 to 24, and the two must differ")
        # Never 0: a queue that nobody works on would grow without an end.
        if not 0.01 <= max_share <= 1:
            raise ValueError(f"{rule!r}: the share must be between 0.01 and 1")
        rules.append(HoursRule(first, end, max_share))
    return tuple(rules)


def max_share_at(rules: Sequence[HoursRule], at: datetime) -> float:
    """The largest share at `at`, a time in the rules' time zone. Where rules overlap the
    smallest share counts; without a rule the share is 1."""
    return min((rule.max_share for rule in rules if rule.holds(at.hour)), default=1.0)
