"""One stretch: prepare, start the processes, count for so many seconds, stop, check everything.

    start ─ first unit ─ warm-up ─┤ before … `seconds` … after ├─ finish ─ stop ─ check
                                   the rate is of these units

Whatever makes or takes in the work runs as a process of its own, and its CPU is shown beside.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.harness.ground import ROOT, Ground
from bench.harness.processes import BenchFailed, Crew, Program, cpu_seconds

_FIRST_SECONDS = 180.0  # until something is done: a busy machine starts slowly
# Connections are made, caches filled and code imported before the clock starts.
_WARM_UP_SHARE, _WARM_UP_SECONDS = 0.2, 1.0


class SideMissing(BenchFailed):
    """A reference is not measured, because what it needs is not there and cannot be installed."""


class Side:
    """One way to do the work: ours, or a reference. A new object for every stretch.

    `count()` is what is done so far, exact at any moment. When it reaches a positive `total`, no
    work is left. `check()` raises BenchFailed unless rows and contents are what they must be.
    """

    name = "ours"
    poll_seconds = 0.002
    total = 0

    def __init__(self, ground: Ground, seconds: float, stretch: str) -> None:
        self.ground, self.seconds, self.stretch = ground, seconds, stretch

    @classmethod
    def install(cls, ground: Ground) -> None:
        """Before the first run, install what a reference needs. Raises SideMissing with a sentence,
        and the bench goes on without this side."""

    def prepare(self) -> None:
        """Make the state that the work starts from; not measured."""

    def programs(self) -> Sequence[Program]:
        """The processes in the order in which they start; they stop in the opposite order."""
        raise NotImplementedError

    def count(self) -> int:
        raise NotImplementedError

    def idle_seconds(self) -> float:
        """Seconds spent so far on what is not the work."""
        return 0.0

    def finish(self, crew: Crew) -> None:
        """After the measured part, before everything is stopped."""

    def await_rest(self, crew: Crew, missing: Callable[[], int], seconds: float) -> None:
        """Stop the load, and wait until nothing of what was accepted is `missing`. Raises
        BenchFailed when that has not changed for `seconds`."""
        crew.stop("load")
        least, deadline = -1, 0.0
        while (left := missing()) > 0:
            if left != least:
                least, deadline = left, time.monotonic() + seconds
            elif time.monotonic() > deadline:
                raise BenchFailed(f"{left} messages did not get through")
            crew.check("load")
            time.sleep(self.poll_seconds)

    def check(self, crew: Crew) -> None:
        """After everything was stopped."""
        raise NotImplementedError


@dataclass(frozen=True)
class Stretch:
    """The result of one stretch: units per second, CPU seconds by process, memory of the side.

    `measured` names the processes of the side, `load` those that make or take in the work. `later`
    are the rates of further parts of the work by name, if it has some.
    """

    rate: float
    seconds: float
    units: int
    cpu: dict[str, float]
    measured: list[str]
    load: list[str]
    pss_mb: float
    extra: dict[str, Any]
    later: dict[str, float] = field(default_factory=dict)

    @property
    def load_cpu(self) -> float:
        """How many cores the load generator and the sink used."""
        return sum(self.cpu[label] for label in self.load) / self.seconds

    @property
    def cpu_us(self) -> dict[str, float]:
        """CPU microseconds per unit, by process."""
        return {label: cpu / self.units * 1e6 for label, cpu in self.cpu.items()}


@dataclass(frozen=True)
class _Moment:
    at: float
    count: int
    cpu: dict[str, float]


def run(side: Side) -> Stretch:
    """Measure one stretch. Raises BenchFailed."""
    side.prepare()
    with Crew(side.programs(), side.ground.folder, ROOT) as crew:
        _await_first(side, crew)
        _run_until(side, crew, min(_WARM_UP_SECONDS, side.seconds * _WARM_UP_SHARE))
        before = _look(side, crew)
        _run_until(side, crew, side.seconds)
        _await_more(side, crew, before.count)
        after = _look(side, crew)
        # While all of them still run and are under load.
        pss_mb = crew.pss_mb()
        side.finish(crew)
    side.check(crew)
    units, seconds = after.count - before.count, after.at - before.at
    if units <= 0 or seconds <= 0:
        raise BenchFailed(
            f"{side.name}: nothing was done within {side.seconds:g} seconds; try longer"
        )
    cpu = {label: after.cpu[label] - before.cpu[label] for label in after.cpu}
    ours, load = crew.labels(load=False), crew.labels(load=True)
    extra = crew.printed("load") if "load" in load else {}
    return Stretch(units / seconds, seconds, units, cpu, ours, load, pss_mb, extra)


def _await_first(side: Side, crew: Crew) -> None:
    deadline = time.monotonic() + _FIRST_SECONDS
    while side.count() <= 0:
        crew.check()
        if time.monotonic() > deadline:
            raise BenchFailed(
                f"{side.name}: nothing happened in {_FIRST_SECONDS:g} seconds\n{crew.output()}"
            )
        time.sleep(side.poll_seconds)


def _await_more(side: Side, crew: Crew, count: int) -> None:
    """Make a stretch longer in which nothing was done: on a busy machine a short one may be."""
    deadline = time.monotonic() + _FIRST_SECONDS
    while (done := side.count()) <= count and time.monotonic() < deadline:
        if side.total and done >= side.total:
            return
        crew.check()
        time.sleep(side.poll_seconds)


def _run_until(side: Side, crew: Crew, seconds: float) -> None:
    """Let `seconds` pass, or less when no work is left."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        # Also without a total: some sides pass the count on to their load generator.
        done = side.count()
        if side.total and done >= side.total:
            return
        time.sleep(min(left, side.poll_seconds))
    crew.check()


def _look(side: Side, crew: Crew) -> _Moment:
    cpu = cpu_of(side, crew)
    at = time.monotonic() - side.idle_seconds()
    return _Moment(at, side.count(), cpu)


def cpu_of(side: Side, crew: Crew) -> dict[str, float]:
    """CPU seconds so far, by process, with the servers."""
    servers = {name: cpu_seconds(pid) for name, pid in side.ground.servers().items()}
    return {**crew.cpu_seconds(), **servers}
