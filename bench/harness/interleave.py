"""All runs of one bench, its sides in turns: what slows the machine down meets all of them."""

import os
import sys
from collections.abc import Sequence
from typing import Any

from bench.harness import batch, catalogue, measure, outcome
from bench.harness.ground import Ground


def run_bench(
    name: str, ground: Ground, seconds: float, runs: int, against: Sequence[str] = ()
) -> dict[str, Any]:
    """The bench's JSON object; with `against` of these sides and ours only. Raises BenchFailed
    when anything was lost."""
    module = catalogue.get(name)
    if module is None:
        raise LookupError(name)
    load_before = os.getloadavg()[0]
    sides, left_out = installed(catalogue.sides(name, against), ground)
    unit = getattr(module, "UNIT", outcome.UNIT)
    stretches: dict[str, list[measure.Stretch]] = {side.name: [] for side in sides}
    for number in range(runs):
        for side in sides:
            made = side(ground, seconds, f"{side.name.replace('+', '-')}-{number}")
            stretch = batch.run(made) if isinstance(made, batch.Batch) else measure.run(made)
            stretches[side.name].append(stretch)
            _report_run(name, number, runs, side.name, stretch, unit)
    facts = {
        "unit": unit,
        "runs": runs,
        "seconds": seconds,
        "database": ground.database,
        "load_average_before": round(load_before, 2),
    }
    if left_out:
        facts["left_out"] = left_out
    if hasattr(module, "facts"):
        facts |= module.facts(ground)
    return outcome.result(name, stretches, facts)


def installed(
    sides: Sequence[type[measure.Side]], ground: Ground
) -> tuple[Sequence[type[measure.Side]], dict[str, str]]:
    """The sides that can be measured here, and a sentence for each one that cannot."""
    there, left_out = [], {}
    for side in sides:
        try:
            side.install(ground)
        except measure.SideMissing as error:
            left_out[side.name] = str(error)
            print(f"{side.name} is left out: {error}", file=sys.stderr, flush=True)
        else:
            there.append(side)
    return there, left_out


def _report_run(
    name: str, number: int, runs: int, side: str, stretch: measure.Stretch, unit: str
) -> None:
    load = f", load generator {stretch.load_cpu:.2f} cores" if stretch.load else ""
    parts = "".join(f"; {part}: {rate:,.0f} {unit}" for part, rate in stretch.later.items())
    print(
        f"{name} run {number + 1}/{runs}  {side:<24} {stretch.rate:>9,.0f} {unit}"
        f"  ({stretch.seconds:.1f} s, {stretch.pss_mb:.0f} MB{load}){parts}",
        file=sys.stderr,
        flush=True,
    )
