"""Work that is given at once and has an end: the clock runs until all of it is done."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.harness.ground import ROOT
from bench.harness.measure import Side, Stretch, cpu_of
from bench.harness.processes import BenchFailed, Crew


class Batch(Side):
    """One way to do work in parts; the bench's rate is that of the first part.

    `check()` is called after each part.
    """

    parts: Sequence[str] = ()

    def warm_up(self, crew: Crew) -> None:
        """After the start, let connections be made and code be imported; not measured."""

    def give(self, part: str) -> int:
        """Prepare a part and hand it over; the number of its units."""
        raise NotImplementedError

    def wait(self, crew: Crew) -> float:
        """Wait until what was given is done; the seconds that it took."""
        raise NotImplementedError


@dataclass(frozen=True)
class _Part:
    units: int
    seconds: float
    cpu: dict[str, float]

    @property
    def rate(self) -> float:
        return self.units / self.seconds


def run(side: Batch) -> Stretch:
    """Measure all parts. Raises BenchFailed."""
    side.prepare()
    with Crew(side.programs(), side.ground.folder, ROOT) as crew:
        side.warm_up(crew)
        first, *others = side.parts
        one = _measured(side, crew, first)
        # The processes stay: later parts find them as warm as an operator would.
        later = {part: _measured(side, crew, part).rate for part in others}
        pss_mb = crew.pss_mb()
        ours, load = crew.labels(load=False), crew.labels(load=True)
    return Stretch(one.rate, one.seconds, one.units, one.cpu, ours, load, pss_mb, {}, later)


def _measured(side: Batch, crew: Crew, part: str) -> _Part:
    units = side.give(part)
    before = cpu_of(side, crew)
    seconds = side.wait(crew)
    after = cpu_of(side, crew)
    side.check(crew)
    if units <= 0 or seconds <= 0:
        raise BenchFailed(f"{side.name}: nothing was done in {part}")
    return _Part(units, seconds, {label: after[label] - before[label] for label in after})
