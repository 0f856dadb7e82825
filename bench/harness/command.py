"""What `manage.py bench` does: run benches one after another, show and write results."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.harness import catalogue, ground, report
from bench.harness.processes import BenchFailed
from bench.soak import document as soak_document
from msgplatform.core.servers import child_process

# How long a child that is interrupted may take to stop its processes and servers, and to remove its
# folder.
_STOP_SECONDS = 60
FOLDER = ground.ROOT / "var" / "bench" / "results"


@dataclass(frozen=True)
class Options:
    """`seconds` bounds each measured stretch. `against` names the sides beside ours; empty: all."""

    seconds: float
    runs: int
    database: str
    against: Sequence[str] = ()


def unknown(names: Sequence[str]) -> str:
    """A sentence when one of the names is no bench or when none was given; else ''."""
    there = ", ".join([*catalogue.names(), "and, alone, soak"])
    wrong = [name for name in names if catalogue.get(name) is None]
    if wrong:
        return f"There is no bench {', '.join(wrong)}. There are: {there}."
    return "" if names else f"Name a bench, or use --all. There are: {there}."


def unknown_sides(names: Sequence[str], against: Sequence[str]) -> str:
    """A sentence unless each of these benches has a side of `against`, and each of `against` is a
    side of one of them; '' without `against`."""
    if not against:
        return ""
    references = {name: [side.name for side in catalogue.sides(name)[1:]] for name in names}
    wrong = ", ".join(sorted(set(against).difference(*references.values())))
    alone = ", ".join(name for name in names if not set(against).intersection(references[name]))
    if wrong:
        problem = f"No reference is called {wrong}."
    elif alone:
        problem = f"{alone} is measured beside none of {', '.join(against)}."
    else:
        return ""
    lists = "; ".join(f"{name}: {', '.join(sides)}" for name, sides in references.items())
    return f"{problem} There are: {lists}."


def names() -> Sequence[str]:
    return catalogue.names()


def run(names: Sequence[str], options: Options) -> Iterator[dict[str, Any]]:
    """The JSON object of each bench as soon as it is complete. Raises BenchFailed.

    Each runs in a process of its own, which makes its environment before Django reads it.
    """
    for name in names:
        program = [
            *(sys.executable, "-m", "bench", name, "--seconds", str(options.seconds)),
            *("--runs", str(options.runs), "--database", options.database),
            *("--against", ",".join(options.against)),
        ]
        with subprocess.Popen(
            child_process.command(program, "--parent", str(os.getpid())),
            cwd=ground.ROOT,
            stdout=subprocess.PIPE,
            # Ctrl-C reaches only us. A second SIGINT would interrupt the child's cleaning up.
            process_group=0,
        ) as child:
            try:
                output, _ = child.communicate()
            except BaseException:
                child.send_signal(signal.SIGINT)
                child.wait(_STOP_SECONDS)
                raise
        if child.returncode:
            raise BenchFailed(f"the bench {name} failed with {child.returncode}; see above")
        result = json.loads(output) | {"date": f"{datetime.now(UTC):%Y-%m-%d}", "commit": _commit()}
        FOLDER.mkdir(parents=True, exist_ok=True)
        (FOLDER / f"{name}.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
        yield result


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    try:
        output = subprocess.run(
            command, cwd=ground.ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return output.stdout.strip()


def table(results: Sequence[dict[str, Any]]) -> str:
    """The results for a terminal."""
    return report.table(results)


def write(results: Sequence[dict[str, Any]], file: Path, folder: Path = FOLDER) -> None:
    """The results as Markdown, with what they were measured on, and those of other benches that
    earlier runs have left in `folder`. The section of a soak stays."""
    soak = soak_document.section_of(file)
    measured = {result["bench"]: result for result in results}
    for name in catalogue.names():
        if name not in measured and (kept := folder / f"{name}.json").exists():
            measured[name] = json.loads(kept.read_text(encoding="utf-8"))
    ordered = [measured[name] for name in catalogue.names() if name in measured]
    file.write_text(report.document(ordered), encoding="utf-8")
    if soak:
        soak_document.put(file, soak)
