"""An update under load, and back: `python -m bench.soak.update --rates notify=300,sms=60,…`.

`up` runs the platform, callers call at moments drawn beforehand, and the steps follow one another:
`update` to the next release (`bench/harness/neighbour.py`), `back`, or a step that is named as a
broken release, which must go back by itself. The ledger of the soak says what was lost or came
twice; the books say how long anybody waited.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.harness import neighbour, processes
from bench.harness.ground import ROOT, Ground
from bench.harness.processes import BenchFailed, Crew, Program
from bench.soak.__main__ import _pairs, _set_up

_CALM_SECONDS = 8.0  # before the first step, between steps, and after the last
_STEP_SECONDS = 400.0
_PLACES = ("fast", "slow", "sms", "crm")


class UpdateUnderLoad:
    def __init__(self, ground: Ground, rates: dict[str, float], steps: Sequence[str]) -> None:
        from bench.soak.soak import Options, Soak

        self.ground, self.rates, self.steps = ground, rates, steps
        self.soak = Soak(ground, Options(1.0, rates, 1.0, ground.folder / "samples"))
        self.releases = {
            step: neighbour.make(ground.folder / f"release-{step}", step)
            for step in steps
            if step != "back"
        }
        self._folder = ROOT  # of the release of the last step
        self.times: list[dict[str, Any]] = []

    def run(self) -> dict[str, Any]:
        from bench.soak import ledger, stage

        cast = stage.create(self.ground)
        programs = [program for program in stage.programs(self.ground) if program.load]
        argv = [sys.executable, str(ROOT / "manage.py"), "up", "--port", str(self.ground.web_port)]
        programs.append(Program("up", argv, self.ground.environment))
        with Crew(programs, self.ground.folder, ROOT) as crew:
            self.soak._await_ready(crew)
            stage.make_friends(self.ground, cast.tokens["feed"])
            time.sleep(10.0)  # all programs have started
            crew.add(
                stage.caller(self.ground, "reads", cast.tokens["feed"], 5.0),
                *(
                    stage.caller(self.ground, flow, cast.tokens[flow], rate, 10_000_000)
                    for flow, rate in self.rates.items()
                ),
            )
            begin = time.monotonic()
            time.sleep(_CALM_SECONDS)
            for step in self.steps:
                self._do(step)
                crew.check()
                time.sleep(_CALM_SECONDS)
            end = time.monotonic()
            crew.stop(*self.rates)
            self.soak._await_rest(crew)
            seen = ledger.read_timeline(lambda path: self.soak._ask(path, cast.tokens["feed"]))
        self.soak.books.read()
        lines = self.soak._lines(cast, seen)
        return {
            "steps": self.times,
            "problems": [problem for line in lines for problem in line.problems],
            "lines": [line.as_dict() for line in lines],
            "repeated": dict(self.soak.books.repeat_counts()),
            "retried": dict(self.soak.books.retried),
            **self._figures(begin, end),
        }

    def _do(self, step: str) -> None:
        folder = self._folder = self.releases.get(step, self._folder)
        arguments = ["--back"] if step == "back" else ["--without-backup"]
        began = time.monotonic()
        result = subprocess.run(
            [sys.executable, "manage.py", "update", *arguments], cwd=folder, text=True,
            env=dict(self.ground.environment), capture_output=True, timeout=_STEP_SECONDS,
            check=False,
        )  # fmt: skip
        seconds = round(time.monotonic() - began, 1)
        print(f"{step}: {seconds} s\n{result.stdout}{result.stderr}", file=sys.stderr, flush=True)
        is_well = result.returncode == 0
        if is_well != (step in ("update", "back")):
            raise BenchFailed(f"{step} ended with {result.returncode}")
        self.times.append({"step": step, "seconds": seconds})

    def _figures(self, begin: float, end: float) -> dict[str, Any]:
        arrivals = self.soak.books.between(begin, end)
        intake: dict[str, Any] = {}
        for flow in self.rates:
            rows = sorted(
                (row.at, row.seconds) for row in arrivals if row.place == f"{flow}:answer"
            )
            waits = sorted(seconds for _, seconds in rows)
            answered = {int(at - begin) for at, _ in rows}
            intake[flow] = {
                "answers": len(rows),
                "seconds_without_answer": len(set(range(int(end - begin))) - answered),
                "p50_ms": _ms(waits, 0.5), "p99_ms": _ms(waits, 0.99), "max_ms": _ms(waits, 1.0),
                "longest_gap_ms": _gap([at for at, _ in rows]),
            }  # fmt: skip
        places = {row.place for row in arrivals if ":" not in row.place}
        delivery: dict[str, Any] = {}
        for place in sorted(places):
            rows = sorted((row.at, row.seconds) for row in arrivals if row.place == place)
            waits = sorted(seconds for _, seconds in rows)
            delivery[place] = {
                "arrivals": len(rows), "longest_gap_ms": _gap([at for at, _ in rows]),
                "p50_ms": _ms(waits, 0.5), "p99_ms": _ms(waits, 0.99), "max_ms": _ms(waits, 1.0),
            }  # fmt: skip
        return {"intake": intake, "delivery": delivery, "seconds": round(end - begin, 1)}


def _ms(waits: Sequence[float], share: float) -> float:
    return round(waits[min(len(waits) - 1, int(len(waits) * share))] * 1000, 1) if waits else 0.0


def _gap(times: Sequence[float]) -> float:
    pairs = pairwise(times)
    return round(max((later - time for time, later in pairs), default=0.0) * 1000, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description="Update the platform under load, and back.")
    parser.add_argument("--rates", default="notify=300,sms=60,crmsync=3,feed=3")
    # `migration` fails only while its column is not there, which each of the others leaves.
    broken = ", ".join(neighbour.BROKEN)
    parser.add_argument("--steps", default="update,back", help=f"{broken} too, migration first")
    parser.add_argument("--file", type=Path, help="for the result, as JSON")
    options = parser.parse_args()
    rates = {name: float(rate) for name, rate in _pairs(options.rates)}
    with Ground("mariadb") as ground:
        _set_up(ground, 3600.0)
        result = UpdateUnderLoad(ground, rates, options.steps.split(",")).run()
    text = json.dumps(result, indent=1)
    if options.file:
        options.file.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    processes.exit_after(main)
