"""What `manage.py bench soak` does: run the soak in a process of its own, show and write it."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.harness import ground
from bench.harness.processes import BenchFailed
from bench.soak import document
from msgplatform.core.errors import InvalidInput
from msgplatform.core.servers import child_process

FLOWS = ("notify", "sms", "crmsync", "feed")
_MAX_HOURS = 8  # the books of an hour take nearly 2 GB
_STOP_SECONDS = 120


@dataclass(frozen=True)
class Options:
    """`rates` (calls a second) by flow: all of them, or none for half of what is measured at the
    start."""

    hours: float
    rates: Mapping[str, float] = field(default_factory=dict)
    every: float = 10.0
    restart: str = ""
    has_loss: bool = False


def rates(texts: Sequence[str]) -> dict[str, float]:
    """The rates of `notify=50`, `sms=10` …; raises InvalidInput."""
    by_flow: dict[str, float] = {}
    for text in texts:
        flow, _, number = text.partition("=")
        try:
            by_flow[flow] = float(number)
        except ValueError:
            raise InvalidInput(f"--rate {text}: write FLOW=NUMBER, such as notify=50") from None
        if flow not in FLOWS or not 0 < by_flow[flow] < 100_000:
            raise InvalidInput(
                f"--rate {text}: the flows are {', '.join(FLOWS)}, the number above 0"
            )
    if by_flow and (missing := [flow for flow in FLOWS if flow not in by_flow]):
        raise InvalidInput(f"--rate: {', '.join(missing)} has none; name all flows, or none")
    return by_flow


def run(options: Options) -> dict[str, Any]:
    """The result of a soak. Ctrl-C ends its load early, and it still has its ledger. Raises
    BenchFailed, InvalidInput."""
    if not 0 < options.hours <= _MAX_HOURS:
        raise InvalidInput(
            f"--hours must be above 0 and at most {_MAX_HOURS}: the books of a run are kept in "
            "memory, nearly 2 GB for each hour at half of what two cores can do"
        )
    folder = ground.ROOT / "var" / "bench" / f"soak-{datetime.now(UTC):%Y%m%dT%H%M%S}"
    program = [
        *(sys.executable, "-m", "bench.soak", "--hours", str(options.hours)),
        *("--rates", ",".join(f"{flow}={rate}" for flow, rate in options.rates.items())),
        *("--every", str(options.every), "--folder", str(folder), "--restart", options.restart),
        *(["--lose-one"] if options.has_loss else []),
    ]
    with subprocess.Popen(
        child_process.command(program, "--parent", str(os.getpid())),
        cwd=ground.ROOT,
        stdout=subprocess.PIPE,
        process_group=0,  # Ctrl-C reaches only us: the load ends, and the ledger comes
    ) as child:
        try:
            output = _output(child)
        except BaseException:
            child.send_signal(signal.SIGINT)
            child.wait(_STOP_SECONDS)
            raise
    if child.returncode:
        raise BenchFailed(f"the soak is void: it ended with {child.returncode}; see above")
    result: dict[str, Any] = json.loads(output)
    return result


def _output(child: subprocess.Popen[bytes]) -> bytes:
    try:
        return child.communicate()[0]
    except KeyboardInterrupt:
        child.send_signal(signal.SIGINT)
        return child.communicate()[0]


def write(result: Mapping[str, Any], file: Path) -> None:
    """Put the section of a result into a document, and its chart into `images` beside that."""
    image = file.parent / "images" / "soak.svg"
    image.parent.mkdir(exist_ok=True)
    shutil.copyfile(Path(result["samples"]).with_name("soak.svg"), image)
    document.put(file, document.section(result, document.relative(image, file)))
