"""The results for people: a table for the terminal, and a Markdown document."""

import inspect
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

from bench.harness import catalogue, machine
from bench.harness.programs import quantiles

Result = Mapping[str, Any]
_TIMES = {"answer_ms": "answers", "due_ms": "from the moment drawn"}

_INTRODUCTION = """\
# Benchmarks

Written by `make bench`; do not edit. Each line was measured in one run: ours, reference, reference,
ours, … so that a machine that gets slower meets all alike. Absolute figures of a shared machine
drift; quote the ratios.

- **Rate**: the median of the runs. The clock starts when connections are made and code is warm.
- **Spread**: (highest − lowest) / median of the runs.
- **Times**: a quantile is given if there are enough times for it (20 for p95, 100 for p99, 1,000
  for p999), and is else “–”.
- **Durability**: MariaDB, or with `--database mysql` MySQL, has `innodb_flush_log_at_trx_commit=1`
  and no binary log; an answer or a mark counts after its commit. The SMS Redis has `appendfsync
  always`.
- **Memory**: the sum of PSS over the processes of our side, without database server, Redis, load
  generator and sink.
- **Checked**: after every stretch each row is counted and its content compared with what was sent,
  on both sides; a bench that lost something fails instead of giving a figure. `latency`,
  `subscriptions`, `fairness`, `marker` and `feed-visible` count only; what reads pages looks at
  their status and length.
- **Open load** (`latency`, `subscriptions`, `fairness`): the rate is what was offered. Times from
  the moment drawn count, and their maximum is that of all runs.
- **Peers** (BullMQ, dlt, Kannel, stream-framework) are installed at a bench's first use into
  `var/bench`, apart from the platform's packages. One that cannot be installed is left out, and the
  result says so. `manage.py bench sender --against pycurl-multi` measures beside that reference
  alone; several have a comma between them.
- Everything (load generator, sink, database, Redis) runs on the same cores as what is measured.
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
    """The Markdown document."""
    parts = [_INTRODUCTION, _machine(results), _overview(results)]
    for result in results:
        module = catalogue.get(result["bench"])
        about = textwrap.fill(module.ABOUT, 100) if module else ""
        references = _references(module, result)
        parts += [f"## {result['bench']}", "", about, "", *references, *_sides(result)]
        for name, reason in result.get("left_out", {}).items():
            parts += ["", f"`{name}` was left out of these runs. {reason}"]
        for part, later in result.get("later", {}).items():
            parts += ["", f"Runs of the {part}:", ""]
            for side, rates in later["rates"].items():
                parts.append(f"- `{side}`: " + ", ".join(map(_rate, rates)))
        if module and hasattr(module, "details"):
            parts += module.details(result)
        parts += ["", "CPU microseconds a message, by process:", "", *_cpu(result), ""]
    return "\n".join(parts)


def _machine(results: Sequence[Result]) -> str:
    # How many runs and how long; then the benches whose runs differ from most.
    lengths = {r["bench"]: f"{r['runs']} of {r['seconds']:g} seconds each" for r in results}
    usual = Counter(lengths.values()).most_common(1)[0][0]
    others = [f"`{bench}` {length}" for bench, length in lengths.items() if length != usual]
    facts = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        **machine.facts(),
        "database of these runs": results[0]["database"],
        "runs": "; ".join([usual, *others]),
    }
    return "\n".join(["## Machine", "", *(f"- {n}: {v}" for n, v in facts.items()), ""])


def _overview(results: Sequence[Result]) -> str:
    head = [
        "| bench | ours | reference | its rate | ours is | memory |",
        "|---|---:|---|---:|---:|---:|",
    ]
    lines = []
    for name, result, memory in _measured(results):
        ours = [name, f"{_rate(result['rate'])}/s"]
        others = [
            [f"`{side}`", f"{_rate(rate)}/s", _ratio(result, side)]
            for side, rate in result["against"].items()
        ] or [["", "", ""]]
        for number, other in enumerate(others):
            cells = [*ours, *other, memory] if number == 0 else ["", "", *other, ""]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(["## Results", "", *head, *lines, ""])


def _ratio(result: Result, side: str) -> str:
    """Ours by the rate of a side; '' for rates that were offered, and for a side with other
    work."""
    module = catalogue.get(result.get("bench", ""))
    if getattr(module, "IS_OPEN", False) or side in getattr(module, "OTHER_WORK", ()):
        return ""
    return f"{result['ratio'][side]:g} ×"


def _measured(results: Iterable[Result]) -> Iterator[tuple[str, Result, str]]:
    """Name, rates and memory of each bench, and of the further parts of its work."""
    for result in results:
        yield f"`{result['bench']}`", result, f"{result['rss_mb']:.0f} MB"
        for part, rates in result.get("later", {}).items():
            yield f"`{result['bench']}`, {part}", rates, ""


def _references(module: ModuleType | None, result: Result) -> list[str]:
    """A line for each reference of the result: the first paragraph of its class's docstring."""
    if module is None:
        return []
    lines = []
    names = {*result["against"], *result.get("left_out", ())}
    for side in module.sides()[1:]:
        if side.name not in names:
            continue
        text = " ".join((inspect.getdoc(side) or "").split("\n\n")[0].split())
        lines.append(f"- `{side.name}`: {text}")
    return [*lines, ""] if lines else []


def _sides(result: Result) -> list[str]:
    """A line for each side: rates of all runs, spread, load generator, answer times."""
    columns = [name for name in _TIMES if name in result]
    parts = ", ".join(name.removesuffix("_ms") for name in quantiles.NAMES)
    head = "| side | runs | spread | load generator |"
    head += "".join(f" {_TIMES[name]} {parts} |" for name in columns)
    rule = "|---|---|---:|---:|" + "---:|" * len(columns)
    lines = []
    for side, rates in result["rates"].items():
        cells = [f"`{side}`", ", ".join(map(_rate, rates)), _spread(result, side)]
        cells.append(f"{result['load_cpu'][side]:.2f} cores")
        cells += [_times(result[name].get(side, {})) for name in columns]
        lines.append(f"| {' | '.join(cells)} |")
    return [head, rule, *lines]


def _times(times: Mapping[str, float]) -> str:
    cells = [f"{times[name]:.1f}" if name in times else "–" for name in quantiles.NAMES]
    return f"{', '.join(cells)} ms"


def _spread(result: Result, side: str) -> str:
    """One run has no spread."""
    return f"{result['spread'][side]:.0%}" if len(result["rates"][side]) > 1 else "–"


def _cpu(result: Result) -> list[str]:
    """A line for each side: its processes that used any, most first."""
    lines = []
    for side, each in result["cpu_us"].items():
        used = [(label, value) for label, value in each.items() if value >= 0.1]
        used.sort(key=lambda pair: -pair[1])
        lines.append(f"- `{side}`: " + ", ".join(f"{label} {value:.1f}" for label, value in used))
    return lines


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:,.1f}"
