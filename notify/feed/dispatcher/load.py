"""The load of the database server and of this machine, as far as other programs are concerned.

Dispatchers disturb nobody while nobody else uses the server. So latency and processors count only
while statements of other programs run. Dispatchers report their connections, so that the meter
knows the statements of dispatchers.
"""

import time
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from statistics import median

import msgspec
from django.db import connection

from msgplatform.core.data import engines
from notify.feed.models import FeedPace

Cause = FeedPace.Cause

# Other programs use the server when at least this number of their statements run at once, on
# average: one moment in ten. An idle platform is below.
PRESENT = 0.1
# Seconds of each measurement. Latency reacts quickly; statements are rare and need more samples;
# the latency at rest is the lowest of ten minutes.
LATENCY_SECONDS = 1.0
STATEMENTS_SECONDS = 3.0
BASELINE_SECONDS = 600.0
_STAT = Path("/proc/stat")
# The smallest statement: it looks up a missing primary key.
_PROBE = "SELECT active FROM feed_user WHERE biz_id = 0 AND uid = ''"


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
    if load.statements < PRESENT:
        return loads[0][0], str(Cause.NONE)
    if load.baseline:
        slower = load.latency / load.baseline
        loads.append((slower / targets.latency, str(Cause.LATENCY)))
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
        self._cpu = _Processors()

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
        own_connections = frozenset(own)
        recent = [sample for sample in self._samples if sample.at >= now - STATEMENTS_SECONDS]
        if not recent:
            return None
        # Samples of an idle platform are further apart, so the last sample may be older.
        latencies = [sample.latency for sample in recent if sample.at >= now - LATENCY_SECONDS]
        latency = median(latencies or [recent[-1].latency])
        statements = sum(len(sample.running - own_connections) for sample in recent) / len(recent)
        self._lows.append((now, latency))
        while self._lows[0][0] < now - BASELINE_SECONDS:
            self._lows.popleft()
        baseline = min(low for _, low in self._lows)
        return Load(latency, baseline, statements, self._cpu.busy())


class _Processors:
    """The part of this machine's processors at work between two calls of `busy`; 0: unknown."""

    def __init__(self) -> None:
        self._before = _ticks()

    def busy(self) -> float:
        idle, total = _ticks()
        idle_before, total_before = self._before
        self._before = idle, total
        if total <= total_before:
            return 0.0
        return max(0.0, 1 - (idle - idle_before) / (total - total_before))


def _ticks() -> tuple[int, int]:
    """(idle, all) of all processors since the machine start."""
    with suppress(OSError, ValueError):
        # user nice system idle iowait irq softirq steal; the time of guests is in user already
        ticks = [int(word) for word in _STAT.read_text().split("\n", 1)[0].split()[1:9]]
        return ticks[3] + ticks[4], sum(ticks)
    return 0, 0
