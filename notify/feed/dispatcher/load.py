"""The load of the database server and of this machine, as far as it concerns others.

Dispatchers hurt nobody as long as nobody else uses the server. So latency and processors count only
while statements of others run. The connection of a statement tells whether it is of a dispatcher,
for dispatchers report their connections.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from django.db import connection

from msgplatform.core.data import engines
from notify.feed.models import FeedPace

Cause = FeedPace.Cause

# Others use the server when, on average, so many of their statements run at once: that is one
# moment in ten. An idle platform asks less than that.
PRESENT = 0.1
# Over how long each is measured: latency follows quickly, statements are rare and need more
# samples, and what the latency is at rest is the lowest of ten minutes.
LATENCY_SECONDS = 1.0
STATEMENTS_SECONDS = 3.0
BASELINE_SECONDS = 600.0
_STAT = Path("/proc/stat")
# Finds nothing, by the primary key: as small as a statement can be.
_PROBE = "SELECT active FROM feed_user WHERE biz_id = 0 AND uid = ''"


@dataclass(frozen=True, slots=True)
class Load:
    """Latencies are in seconds, `baseline` is that at rest. `statements` is how many of others run
    at once, on average; `cpu` is the part of this machine's processors at work, 0 to 1."""

    latency: float
    baseline: float
    statements: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Targets:
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


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    latency: float
    running: frozenset[int]  # connections


class Meter:
    """Takes samples and sums them up. For one thread, with its own connection."""

    def __init__(self, baseline: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        """`baseline`: the latency at rest by an earlier meter, in seconds; 0 without one."""
        self._clock = clock
        self._samples: deque[_Sample] = deque()
        self._lows: deque[tuple[float, float]] = deque()  # moments and their latency
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
        """The load of the last seconds; `own` are the connections of all dispatchers. None without
        a sample."""
        now = self._clock()
        own_connections = frozenset(own)
        recent = [one for one in self._samples if one.at >= now - STATEMENTS_SECONDS]
        if not recent:
            return None
        # Samples of an idle platform are further apart: then the last one has to do.
        latencies = [one.latency for one in recent if one.at >= now - LATENCY_SECONDS]
        latency = median(latencies or [recent[-1].latency])
        statements = sum(len(one.running - own_connections) for one in recent) / len(recent)
        self._lows.append((now, latency))
        while self._lows[0][0] < now - BASELINE_SECONDS:
            self._lows.popleft()
        baseline = min(low for _, low in self._lows)
        return Load(latency, baseline, statements, self._cpu.busy())


class _Processors:
    """The part of this machine's processors at work between two calls; 0 where it is unknown."""

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
