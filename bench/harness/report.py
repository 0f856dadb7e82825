"""The results for people: a table for the terminal, and a Markdown document."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.harness import catalogue, machine
from bench.harness.programs import quantiles

Result = Mapping[str, Any]
# Below it a reference is ahead by more than two runs of one side differ.
_LEVEL = 0.95
_SHOWN_TIMES = tuple(name for name in quantiles.NAMES if name != "p999_ms")

_INTRODUCTION = """\
# Benchmarks

For engineers who want to know how fast the platform is, and beside what. Written by `make bench`,
which measures your own machine; do not edit. Machines to order: [sizing.md](sizing.md).

## Method

- **Rate**: the median of the runs, in turns (ours, reference, reference, ours, …), so that a
  machine that gets slower meets all alike. Quote the ratios: absolute figures of a shared machine
  drift. **Spread**: (highest − lowest) / median.
- **Times** are p50, p95, p99, maximum in ms, from the answer to the publisher until the first
  byte at the consumer; under open load (`latency`, `subscriptions`, `fairness`) from the moment
  drawn beforehand, and the rate is what was offered.
- **µs** is the processor time of a message, of all processes together, load generator, consumer,
  database and Redis among them; all run on the cores that they are measured on, one process of
  each role. **MB**: PSS of our processes.
- **Durable**: an answer or a mark counts after its commit (`innodb_flush_log_at_trx_commit=1`, no
  binary log; SMS Redis with `appendfsync always`).
- **Checked**: after every stretch each row is counted and its content compared with what was
  sent, on both sides; a bench that lost something fails. (`latency`, `subscriptions`, `fairness`,
  `marker` and `feed-visible` count only; `pages` looks at status and length.)
- **Peers** are installed at a bench's first use into `var/bench`; one that cannot be is left out,
  and named. `manage.py bench sender --against pycurl-multi` measures one bench beside one
  reference. Each run, process and query plan is in `var/bench`.
"""


def table(results: Iterable[Result]) -> str:
    """A line for each side of each bench."""
    lines = [f"{'bench':<17}{'side':<24}{'rate':>12}{'ours is':>10}{'spread':>9}{'memory':>10}"]
    for result in results:
        memory = f"{result['rss_mb']:.0f} MB"
        lines.append(
            f"{result['bench']:<17}{'ours':<24}{_rate(result['rate']):>12}{'':>10}"
            f"{_spread(result, 'ours'):>9}{memory:>10}"
        )
        for name, rate in result["against"].items():
            ratio, spread = _ratio(result, name), _spread(result, name)
            lines.append(f"{'':<17}{name:<24}{_rate(rate):>12}{ratio:>10}{spread:>9}")
        for name, reason in result.get("left_out", {}).items():
            lines.append(f"{'':<17}{name:<24}left out: {reason}")
        for part, later in result.get("later", {}).items():
            lines.append(f"{'':<17}{part + ', ours':<24}{_rate(later['rate']):>12}")
            for name, rate in later["against"].items():
                ratio = _ratio(later, name)
                lines.append(f"{'':<17}{part + ', ' + name:<24}{_rate(rate):>12}{ratio:>10}")
    return "\n".join(lines)


def document(results: Sequence[Result]) -> str:
    """The Markdown document; the results may be of several days and commits."""
    lines = [_INTRODUCTION, *_machine(results), *_results(results), *_shortfalls(results)]
    lines += ["## What was measured", ""]
    for result in results:
        lines += [*_about(result), ""]
    return "\n".join(lines)


def _machine(results: Sequence[Result]) -> list[str]:
    measured: dict[str, list[str]] = {}
    for result in results:
        runs = f"{result['runs']} × {result['seconds']:g} s, {result['database']}"
        moment = f"{result['date']}, commit {result['commit']}, {runs}"
        measured.setdefault(moment, []).append(f"`{result['bench']}`")
    return [
        "## Machine", "",
        "; ".join(f"{name}: {fact}" for name, fact in machine.facts().items()) + ".", "",
        *(f"- {moment}: {', '.join(names)}." for moment, names in measured.items()), "",
    ]  # fmt: skip


def _results(results: Sequence[Result]) -> list[str]:
    """A line for each side of each bench, and of each further part of its work."""
    lines = [
        "## Results", "",
        "| bench | side | rate | ours is | spread | times, ms | µs | MB |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]  # fmt: skip
    for result in results:
        rates = {"ours": result["rate"], **result["against"]}
        for side, rate in rates.items():
            shared = [_spread(result, side), _times(result, side), _cpu(result, side)]
            if side == "ours":
                cells = [f"`{result['bench']}`", side, f"{_rate(rate)} {result['unit']}", ""]
                cells += [*shared, f"{result['rss_mb']:.0f}"]
            else:
                cells = ["", f"`{side}`", _rate(rate), _ratio(result, side), *shared, ""]
            lines.append(f"| {' | '.join(cells)} |")
        for part, later in result.get("later", {}).items():
            lines.append(f"| | {part}, ours | {_rate(later['rate'])} | | | | | |")
            lines += [
                f"| | {part}, `{side}` | {_rate(rate)} | {_ratio(later, side)} | | | | |"
                for side, rate in later["against"].items()
            ]
    return [*lines, ""]


def _shortfalls(results: Sequence[Result]) -> list[str]:
    """A paragraph for each side that is ahead of ours, or whose work is another and slow."""
    lines = []
    for result in results:
        reasons: Mapping[str, str] = getattr(catalogue.get(result["bench"]), "REASONS", {})
        for side, reason in reasons.items():
            if side not in result["against"]:
                continue
            parts = [result, *result.get("later", {}).values()]
            if not _ratio(result, side):
                lines.append(f"- **`{result['bench']}`, `{side}`**: {reason}")
            elif min(part["ratio"][side] for part in parts) < _LEVEL:
                ratios = " and ".join(f"{part['ratio'][side]:g} ×" for part in parts)
                lines.append(f"- **`{result['bench']}` is {ratios} `{side}`**: {reason}")
    return ["## Figures that are not good", "", *lines, ""] if lines else []


def _about(result: Result) -> list[str]:
    """What the bench does, its sides, and its own lines."""
    module = catalogue.get(result["bench"])
    if module is None:
        return []
    lines = [f"**`{result['bench']}`**: {_first_sentence(module.ABOUT)}", ""]
    lines += [
        f"- `{side.name}`: {_first_sentence(inspect.getdoc(side) or '')}"
        for side in module.sides()[1:]
        if side.name in result["against"]
    ]
    for name, reason in result.get("left_out", {}).items():
        lines.append(f"- `{name}` was left out. {reason}")
    return [*lines, *module.details(result)] if hasattr(module, "details") else lines


def _first_sentence(text: str) -> str:
    return f"{' '.join(text.split()).partition('. ')[0].removesuffix('.')}."


def _ratio(result: Result, side: str) -> str:
    """Ours by the rate of a side; '' for rates that were offered, and for a side with other
    work."""
    module = catalogue.get(result.get("bench", ""))
    if getattr(module, "IS_OPEN", False) or side in getattr(module, "OTHER_WORK", ()):
        return ""
    return f"{result['ratio'][side]:g} ×"


def _times(result: Result, side: str) -> str:
    """Under open load the times from the moment drawn."""
    times = (result.get("due_ms") or result.get("answer_ms") or {}).get(side)
    if not times:
        return ""
    shown = (f"{times[name]:.1f}" if name in times else "–" for name in _SHOWN_TIMES)
    return ", ".join(shown)


def _spread(result: Result, side: str) -> str:
    """One run has no spread."""
    return f"{result['spread'][side]:.0%}" if len(result["rates"][side]) > 1 else "–"


def _cpu(result: Result, side: str) -> str:
    return f"{sum(result['cpu_us'][side].values()):,.0f}"


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:,.1f}"
