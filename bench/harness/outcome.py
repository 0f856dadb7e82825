"""The result of a bench, made of its stretches: medians, spread, ratios."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.harness.measure import Stretch
from bench.harness.programs import quantiles

UNIT = "msgs/s"


def result(
    name: str, stretches: Mapping[str, Sequence[Stretch]], facts: Mapping[str, Any]
) -> dict[str, Any]:
    """The JSON object of a bench. The first side of `stretches` is ours.

    `rate` and `against` are medians over the runs, `spread` is (highest - lowest) / median.
    `rss_mb` is the sum of PSS over the processes of our side (`rss_of`): no database, no Redis,
    no load generator. `load_cpu` is in cores, `cpu_us` in microseconds a message, both medians.
    """
    # Medians, because one run beside something else on the machine must not decide.
    ours, *references = stretches
    rates = {side: [s.rate for s in runs] for side, runs in stretches.items()}
    medians = {side: statistics.median(values) for side, values in rates.items()}
    return {
        "bench": name,
        "rate": _short(medians[ours]),
        "unit": UNIT,
        "against": {side: _short(medians[side]) for side in references},
        "ratio": {side: round(medians[ours] / medians[side], 2) for side in references},
        "rss_mb": round(statistics.median(s.pss_mb for s in stretches[ours]), 1),
        "rss_of": stretches[ours][0].measured,
        "spread": {
            side: round((max(values) - min(values)) / medians[side], 3)
            for side, values in rates.items()
        },
        "rates": {side: [_short(value) for value in values] for side, values in rates.items()},
        "measured_seconds": {
            side: round(statistics.median(s.seconds for s in runs), 2)
            for side, runs in stretches.items()
        },
        "load_cpu": {
            side: round(statistics.median(s.load_cpu for s in runs), 2)
            for side, runs in stretches.items()
        },
        "cpu_us": {side: _medians(s.cpu_us for s in runs) for side, runs in stretches.items()},
        **_latencies(stretches),
        **_later(stretches),
        **facts,
    }


def _medians(each: Iterable[Mapping[str, float]]) -> dict[str, float]:
    runs = list(each)
    return {label: round(statistics.median(r[label] for r in runs), 1) for label in runs[0]}


def _latencies(stretches: Mapping[str, Sequence[Stretch]]) -> dict[str, Any]:
    """The quantiles of times that a load generator measured in each run: medians of the runs, and
    the maximum of all. `due_ms` are those from the moments that an open load has drawn."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for title, names in (("answer_ms", quantiles.NAMES), ("due_ms", quantiles.DUE_NAMES)):
        for side, runs in stretches.items():
            if names[-1] in runs[0].extra:
                common = [name for name in names if all(name in s.extra for s in runs)]
                times = _medians({n: s.extra[n] for n in common} for s in runs)
                times[names[-1]] = round(max(s.extra[names[-1]] for s in runs), 1)
                found.setdefault(title, {})[side] = {
                    name.removeprefix(quantiles.DUE): value for name, value in times.items()
                }
    return found


def _later(stretches: Mapping[str, Sequence[Stretch]]) -> dict[str, Any]:
    """The further parts of the work, each with the same figures as the first one."""
    ours, *references = stretches
    found: dict[str, Any] = {}
    for part in stretches[ours][0].later:
        rates = {side: [s.later[part] for s in runs] for side, runs in stretches.items()}
        medians = {side: statistics.median(values) for side, values in rates.items()}
        found[part] = {
            "rate": _short(medians[ours]),
            "against": {side: _short(medians[side]) for side in references},
            "ratio": {side: round(medians[ours] / medians[side], 2) for side in references},
            "rates": {side: [_short(value) for value in values] for side, values in rates.items()},
        }
    return {"later": found} if found else {}


def _short(rate: float) -> float:
    """Rounded: more than three digits would claim a precision that such a figure does not have."""
    return round(rate) if rate >= 100 else round(rate, 1)
