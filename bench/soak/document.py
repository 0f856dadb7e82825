"""A soak for people: a table on the terminal, a section of a document, a chart."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.harness.programs import quantiles
from bench.soak import chart
from bench.soak.judgement import TOLERANCES, UNITS

START, END = "<!-- soak -->", "<!-- /soak -->"
_PLACES = {
    "fast": "Notify, a quick subscriber", "slow": "Notify, a slow one (⅓ s an answer)",
    "sms": "SMS, until the Report is with the sender", "crm": "lead, until the CRM has it",
    "feed": "post, until a friend reads it", "reads:answer": "a timeline's page",
}  # fmt: skip
Result = Mapping[str, Any]


def table(result: Result) -> str:
    """The ledger, the judgement and latencies for a terminal."""
    lines = [f"{'way':<16}" + "".join(f"{name:>12}" for name in _LEDGER)]
    lines += [
        f"{line['way']:<16}" + "".join(f"{line[name]:>12,}" for name in _LEDGER)
        for line in result["lines"]
    ]
    lines += [
        "",
        f"{'ms since due':<46}" + "".join(f"{n.removesuffix('_ms'):>10}" for n in quantiles.NAMES),
    ]
    for place, title in _PLACES.items():
        if times := result["latency"].get(place):
            figures = (f"{milliseconds(times, name):>10}" for name in quantiles.NAMES)
            lines.append(f"{title:<46}" + "".join(figures))
    lines += [*_unread(result), "", *judgement(result)]
    lines += [f"an error was logged: {error}" for error in result["errors"]]
    return "\n".join([*lines, _counts(result), *result["problems"], _verdict(result)])


_LEDGER = ("published", "delivered", "failed", "waiting", "arrived")


def judgement(result: Result) -> list[str]:
    """Sentences: what is not flat, or that everything is."""
    findings = result["findings"]
    if not findings:
        return ["The run is too short to compare its quarters."]
    grown = [each for each in findings if not each["is_flat"]]
    sentences = [f"{len(findings) - len(grown)} of {len(findings)} figures are flat."]
    for each in grown:
        unit = UNITS.get(each["column"], each["column"])
        subject = _PLACES.get(each["subject"], each["subject"])
        sentences.append(f"NOT FLAT: {subject}: {each['before']:g} → {each['after']:g} {unit}")
    if result["old_rows"]:
        sentences.append(f"NOT DELETED: {result['old_rows']} rows are older than retention allows.")
    return sentences


def _verdict(result: Result) -> str:
    if result["is_void"]:
        return "The run is VOID: the ledger does not balance."
    return "The ledger balances."


def section(result: Result, image: str) -> str:
    """The section of the document, between its marks."""
    parts = [START, "## Soak", "", _introduction(result), "", f"![Latency and memory]({image})", ""]
    parts += [_LEDGER_TEXT, "", f"| way | {' | '.join(_LEDGER)} |"]
    parts.append("|---|" + "---:|" * len(_LEDGER))
    for line in result["lines"]:
        cells = [line["way"], *(f"{line[name]:,}" for name in _LEDGER)]
        parts.append(f"| {' | '.join(cells)} |")
    names = " | ".join(name.removesuffix("_ms") for name in quantiles.NAMES)
    parts += ["", f"| ms since due | {names} | p95 first quarter | last |", "|---|" + "---:|" * 7]
    parts += [*_latency_rows(result), ""]
    if unread := _unread(result):
        parts += [*unread, ""]
    parts += [*_flatness(result), ""]
    parts += [f"- {line}" for line in judgement(result)]
    parts += [f"- An error was logged: {error}" for error in result["errors"]]
    return "\n".join([*parts, f"- {_counts(result)}", END])


def _counts(result: Result) -> str:
    retried, repeated, unsent = (
        sum(result[name].values()) for name in ("retried", "repeated", "unsent")
    )
    return (
        f"Callers repeated {retried:,} requests, {repeated:,} messages came twice (at least once "
        f"is the promise), {unsent:,} calls were due and not sent when the load ended."
    )


_LEDGER_TEXT = """\
The ledger, by the books of callers and consumers and by the database (hot tables and archive),
after everything was stopped: published = delivered + failed + waiting. Messages to the dead
subscriber fail behind its open breaker, most of them without a request."""


def _introduction(result: Result) -> str:
    rates = ", ".join(f"{flow} {rate:g}" for flow, rate in result["rates"].items())
    signals = [each["signal"] for each in result["restarts"]]
    text = f"""\
{result["seconds"] / 60:.0f} minutes of open load ({rates} a second), written by
`manage.py bench soak`. Moments are drawn beforehand, and a latency counts from the moment that was
drawn, restarts included. Archive, retention, statistics and partitions are at work, with times so
short that they act within the run. Programs were restarted in the first quarter,
{signals.count("SIGTERM")} by SIGTERM and {signals.count("SIGKILL")} by SIGKILL (grey lines)."""
    if load := result.get("load_average"):
        text += f" The machine's load average was {load:g} (median), of which this run is a part."
    return text


def _flatness(result: Result) -> list[str]:
    """The memory of the platform's programs and of Redis as a table, and what counts as flat."""
    if not result["findings"]:
        return []
    parts = ["Memory in MB (PSS, with children; medians of samples), and MariaDB's connections:"]
    parts += ["", "| | second quarter | last | flat |", "|---|---:|---:|---|"]
    for each in result["findings"]:
        is_ours = each["subject"] == "web" or each["subject"].startswith("run_")
        if (each["column"] == "pss_mb" and is_ours) or each["column"] in (
            "memory_mb",
            "connections",
        ):
            cells = [each["subject"], f"{each['before']:g}", f"{each['after']:g}"]
            parts.append(f"| {' | '.join([*cells, 'yes' if each['is_flat'] else '**no**'])} |")
    allowed = [f"{name} {share:.0%} + {more:g}" for name, (share, more) in TOLERANCES.items()]
    return [
        *parts,
        "",
        "Descriptors, threads, keys and hot tables are compared likewise (MariaDB's memory without "
        "its buffer pool), latencies with the first quarter. Flat is a growth of at most: "
        f"{', '.join(allowed)}.",
    ]


def _latency_rows(result: Result) -> list[str]:
    rows = []
    for place, title in _PLACES.items():
        if times := result["latency"].get(place):
            cells = [milliseconds(times, name) for name in quantiles.NAMES]
            quarters = (result["quarters"][0], result["quarters"][-1])
            cells += [milliseconds(each.get(place, {}), "p95_ms") for each in quarters]
            rows.append(f"| {title} | {' | '.join(cells)} |")
    return rows


def milliseconds(times: Mapping[str, float], name: str) -> str:
    """A quantile; without enough times for it, a dash."""
    return f"{times[name]:,.0f}" if name in times else "–"


def _unread(result: Result) -> list[str]:
    """A sentence about posts whose latency is not known."""
    if not (count := result.get("unread", 0)):
        return []
    return [
        f"{count:,} posts were on no page that the load read: their latency is not among these; "
        "the ledger looks for them in the whole timeline."
    ]


def section_of(file: Path) -> str:
    """The section that a document has; '' without one."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    start, end = text.find(START), text.find(END)
    return text[start : end + len(END)] if 0 <= start < end else ""


def put(file: Path, new: str) -> None:
    """Put the section into a document, in place of the one that is there."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    old = section_of(file)
    text = text.replace(old, new) if old else f"{text.rstrip()}\n\n{new}\n"
    file.write_text(text, encoding="utf-8")


def relative(image: Path, file: Path) -> str:
    return os.path.relpath(image, file.parent)


def draw(result: Result, samples: Sequence[Mapping[str, Any]], file: Path) -> None:
    """The chart of a run."""
    latency = {
        title.partition(" (")[0].partition(", until")[0]: [
            (s["elapsed"], s["latency"][place]["p95_ms"])
            for s in samples
            if "p95_ms" in s["latency"].get(place, {})
        ]
        for place, title in _PLACES.items()
    }
    daemons = {
        label: [(s["elapsed"], s["programs"].get(label, {}).get("pss_mb", 0.0)) for s in samples]
        for label in _largest(samples)
    }
    stores = {
        f"{name} Redis": [(s["elapsed"], s["redis"][name]["memory_mb"]) for s in samples]
        for name in ("work", "sms")
    }
    panels = [
        chart.Panel("p95 since the moment drawn, ms", latency, is_logarithmic=True),
        chart.Panel("memory of the largest programs, MB (PSS)", daemons),
        chart.Panel("memory of Redis, MB", stores),
    ]
    chart.write(file, panels, result["seconds"], [each["at"] for each in result["restarts"]])


def _largest(samples: Sequence[Mapping[str, Any]]) -> list[str]:
    """The programs of the platform with most memory at the end, without servers and load."""
    if not samples:
        return []
    programs = samples[-1]["programs"]
    ours = [label for label in programs if label == "web" or label.startswith("run_")]
    return sorted(ours, key=lambda label: -programs[label]["pss_mb"])[:8]
