"""The run: capacity, load, restarts, samples, the rest of the work, the ledger.

start ─ capacity ─┤ load … samples … restarts in the first quarter … ├─ rest ─ stop ─ ledger
"""

import json
import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.db import connection

from bench.harness.ground import ROOT, Ground
from bench.harness.processes import BenchFailed, Crew
from bench.harness.programs.progress import Progress
from bench.soak import books, document, judgement, ledger, samples, stage
from bench.soak.rest import open_messages
from msgplatform.core.servers.logged_errors import unexpected_errors

FLOWS = ("notify", "sms", "crmsync", "feed")
READS_A_SECOND = 5.0
_READY_SECONDS = 300.0
_CAPACITY_SHARE, _CAPACITY_SECONDS = 0.05, 30.0
_IN_FLIGHT = {"notify": 500, "sms": 500, "crmsync": 200, "feed": 100}
_MAIN_FIRST = 10_000_000  # the number of the first call after the look for the capacity
_RESTARTS = (0.10, 0.24)  # the part of the run in which programs are restarted
# One program of each flow is killed; the others get SIGTERM.
KILLED = ("run_sender", "run_sms_sender", "run_sync_handler", "run_feed_dispatcher")
# After a restart, in which messages may come twice: the longest lease, of what a killed sender of
# Notify had claimed, is twice NOTIFY_LEASE_SECONDS, 240 seconds.
_REPEAT_SECONDS = 300.0
_LAST_READ_SECONDS = 30.0
_REST_SECONDS = 120.0  # without progress, when what is open stays open


@dataclass(frozen=True)
class Options:
    """`rates` are calls a second by flow, empty: half of what is measured at the start. `restarted`
    are the programs that are restarted, empty: all. `has_loss`: a delivery is deleted before the
    ledger, which must show it."""

    seconds: float
    rates: Mapping[str, float]
    every: float
    folder: Path
    restarted: Sequence[str] = ()
    has_loss: bool = False


class Soak:
    """One run on private servers."""

    def __init__(self, ground: Ground, options: Options) -> None:
        self.ground, self.options = ground, options
        self.books = books.Books(ground.folder)
        self.samples: list[dict[str, Any]] = []
        self.restarts: list[dict[str, Any]] = []
        self._unwritten_posts: set[int] = set()
        self._stop = threading.Event()
        self._begin = 0.0
        options.folder.mkdir(parents=True, exist_ok=True)
        self._file = (options.folder / "samples.jsonl").open("w", encoding="utf-8")

    def run(self) -> dict[str, Any]:
        """The result. Raises BenchFailed when a program died; a ledger that does not balance is
        in the result."""
        signal.signal(signal.SIGINT, self._interrupt)
        cast = stage.create(self.ground)
        with Crew(stage.programs(self.ground), self.ground.folder, ROOT) as crew:
            self._await_ready(crew)
            stage.make_friends(self.ground, cast.tokens["feed"])
            reads = stage.caller(self.ground, "reads", cast.tokens["feed"], READS_A_SECOND)
            crew.add(reads)
            rates = self.options.rates or self._half_rates(crew, cast)
            crew.add(
                *(
                    stage.caller(self.ground, flow, cast.tokens[flow], rates[flow], _MAIN_FIRST)
                    for flow in FLOWS
                )
            )
            self._load(crew)
            crew.stop(*FLOWS)
            self._await_rest(crew)
            self._await_retention(crew)
            seen = ledger.read_timeline(lambda path: self._ask(path, cast.tokens["feed"]))
        self.books.read()
        result = self._result(rates, self._lines(cast, seen))
        if self.options.has_loss:
            result["lines_before_loss"] = result["lines"]
            _lose_one(cast.subscriptions["fast"])
            self._judge_lines(result, self._lines(cast, seen))
        return result

    def _await_ready(self, crew: Crew) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while not stage.is_ready(self.ground):
            crew.check()
            if time.monotonic() > deadline:
                raise BenchFailed(f"the platform is not ready\n{crew.output()}")
            time.sleep(0.2)

    def _lines(self, cast: stage.Cast, seen: Sequence[str]) -> list[ledger.Line]:
        unwritten = self._unwritten_posts | ledger.unwritten_posts()
        return ledger.lines(self.books, cast, stage.operator_log(self.ground), seen, unwritten)

    def _ask(self, path: str, token: str) -> Mapping[str, Any]:
        """A page of a list; the platform names the next one with its own address."""
        parts = urlsplit(path)
        return stage.request(self.ground, f"{parts.path}?{parts.query}", token)

    # -- load ------------------------------------------------------------------------------------
    def _half_rates(self, crew: Crew, cast: stage.Cast) -> dict[str, float]:
        """Half of what all flows deliver side by side with so much in flight. Of Notify and SMS it
        is half of their capacity then; leads and posts wait more than they work, and alone, with
        more in flight, they do many times as much."""
        seconds = min(_CAPACITY_SECONDS, self.options.seconds * _CAPACITY_SHARE + 5)
        labels = [f"{flow}-capacity" for flow in FLOWS]
        crew.add(
            *(
                stage.caller(
                    self.ground, flow, cast.tokens[flow], at_most=_IN_FLIGHT[flow], label=label
                )
                for flow, label in zip(FLOWS, labels, strict=True)
            )
        )
        counts = {
            flow: Progress(self.ground.folder / f"{stage.WAYS[flow]}.progress") for flow in FLOWS
        }
        self._stop.wait(seconds / 3)  # connections are made, and code gets warm
        before, begun = {flow: counts[flow].count for flow in FLOWS}, time.monotonic()
        self._stop.wait(seconds * 2 / 3)
        took = time.monotonic() - begun
        rates = {flow: max(0.5, (counts[flow].count - before[flow]) / took / 2) for flow in FLOWS}
        crew.stop(*labels)
        self._await_rest(crew)
        parts = [f"{flow} {rates[flow]:.1f}/s ({_IN_FLIGHT[flow]} in flight)" for flow in FLOWS]
        _say(f"half of what all of them do side by side: {', '.join(parts)}")
        return rates

    def _load(self, crew: Crew) -> None:
        """Sample every so many seconds, and restart each program once."""
        self._begin = time.monotonic()
        self.books.read()
        plan = self._plan(crew)
        next_sample = self._begin + self.options.every
        restarted: list[str] = []
        while not self._stop.is_set() and (plan or self._elapsed < self.options.seconds):
            now = time.monotonic()
            if plan and self._elapsed >= plan[0][0]:
                label = plan.pop(0)[1]
                self._restart(crew, label)
                restarted.append(label)
            elif now >= next_sample:
                crew.check()
                self._sample(crew, restarted)
                restarted = []
                next_sample = max(next_sample + self.options.every, time.monotonic())
            else:
                until = min(next_sample, self._begin + plan[0][0] if plan else next_sample)
                self._stop.wait(max(0.01, min(until - now, 1.0)))
        self._sample(crew, restarted)

    def _plan(self, crew: Crew) -> list[tuple[float, str]]:
        labels = list(self.options.restarted) or crew.labels(load=False)
        first, last = (part * self.options.seconds for part in _RESTARTS)
        return [
            (first + (last - first) * number / len(labels), label)
            for number, label in enumerate(labels)
        ]

    def _restart(self, crew: Crew, label: str) -> None:
        at, is_killed = self._elapsed, label in KILLED
        crew.restart(label, is_killed)
        signal_name = "SIGKILL" if is_killed else "SIGTERM"
        seconds = round(self._elapsed - at, 1)
        until = time.monotonic() + _REPEAT_SECONDS
        self.books.restart_windows.append((self._begin + at, until))
        self.restarts.append(
            {"at": round(at, 1), "program": label, "signal": signal_name, "seconds": seconds}
        )
        _say(f"{_clock(self._elapsed)}  {label} was restarted ({signal_name}, {seconds} s)")

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self._begin

    def _sample(self, crew: Crew, restarted: list[str]) -> None:
        self._unwritten_posts |= ledger.unwritten_posts()
        sample = {
            "elapsed": round(self._elapsed, 1),
            "load_average": round(os.getloadavg()[0], 2),
            **samples.take(self.ground, crew),
            "load": crew.labels(load=True),
            "latency": books.report(self.books.read()),
            "accepted": {flow: len(self.books.accepted[flow]) for flow in FLOWS},
            "arrived": {place: len(numbers) for place, numbers in self.books.arrived.items()},
            # Also those of the window before: what they delayed comes later.
            "restarts": restarted + (self.samples[-1]["restarted"] if self.samples else []),
            "restarted": restarted,
        }
        self.samples.append(sample)
        self._file.write(json.dumps(sample) + "\n")
        self._file.flush()
        _say(self._progress(sample))

    def _progress(self, sample: Mapping[str, Any]) -> str:
        parts = []
        for flow in FLOWS:
            place = stage.WAYS[flow]
            p95 = document.milliseconds(sample["latency"].get(place, {}), "p95_ms")
            sent, delivered = sample["accepted"][flow], sample["arrived"].get(place, 0)
            parts.append(f"{flow} {sent:,} sent, {delivered:,} delivered, p95 {p95} ms")
        whole = f"{_clock(sample['elapsed'])} of {_clock(self.options.seconds)}"
        return f"{whole}  {' · '.join(parts)}"

    # -- the end ---------------------------------------------------------------------------------
    def _await_rest(self, crew: Crew) -> None:
        """Until nothing is open but what waits for a dead subscriber; what stays is in the
        ledger."""
        least, deadline = -1, time.monotonic() + _REST_SECONDS
        while (count := open_messages()) and time.monotonic() < deadline:
            if least < 0 or count < least:
                least, deadline = count, time.monotonic() + _REST_SECONDS
            crew.check()
            time.sleep(0.2)
        self._await_last_read()

    def _await_retention(self, crew: Crew) -> None:
        """Until old archives are deleted; what stays is in the result."""
        deadline = time.monotonic() + _REST_SECONDS
        while ledger.old_rows() and time.monotonic() < deadline:
            crew.check()
            time.sleep(0.2)

    def _await_last_read(self) -> None:
        """The watched reader comes again and again; what it does not see the ledger looks for."""
        deadline = time.monotonic() + _LAST_READ_SECONDS
        self.books.read()
        while len(self.books.arrived["feed"]) < len(self.books.accepted["feed"]):
            if time.monotonic() > deadline:
                return
            time.sleep(1 / READS_A_SECOND)
            self.books.read()

    def _result(self, rates: Mapping[str, float], lines: list[ledger.Line]) -> dict[str, Any]:
        end = self._begin + self._elapsed
        quarter = self.samples[-1]["elapsed"] / 4
        result: dict[str, Any] = {
            "bench": "soak",
            "seconds": self.samples[-1]["elapsed"],
            "rates": {flow: round(rate, 1) for flow, rate in rates.items()},
            "latency": books.report(self.books.between(self._begin, end)),
            "quarters": [
                books.report(
                    self.books.between(self._begin + n * quarter, self._begin + (n + 1) * quarter)
                )
                for n in range(4)
            ],
            "load_average": statistics.median(s["load_average"] for s in self.samples),
            "retried": dict(self.books.retried),
            "repeated": dict(self.books.repeat_counts()),
            "unsent": dict(self.books.unsent),
            "unread": self._unread(),
            "restarts": self.restarts,
            "findings": [each.as_dict() for each in judgement.judge(self.samples)],
            "old_rows": ledger.old_rows(),
            "errors": unexpected_errors(self.ground.folder),
            "samples": str(self.options.folder / "samples.jsonl"),
        }
        self._judge_lines(result, lines)
        return result

    def _unread(self) -> int:
        """How many posts of the load no page has shown: they have no latency."""
        unread = self.books.accepted["feed"].keys() - self.books.arrived["feed"]
        return sum(number >= _MAIN_FIRST for number in unread)

    @staticmethod
    def _judge_lines(result: dict[str, Any], lines: list[ledger.Line]) -> None:
        result["lines"] = [line.as_dict() for line in lines]
        result["problems"] = [problem for line in lines for problem in line.problems]
        result["is_void"] = bool(result["problems"])

    def _interrupt(self, *_: object) -> None:
        """The first Ctrl-C ends the load; the second one everything."""
        if self._stop.is_set():
            raise KeyboardInterrupt
        self._stop.set()
        _say("stopping: what is on its way is awaited, then comes the ledger; Ctrl-C again kills")


def _lose_one(subscription: int) -> None:
    """Delete a delivery, wherever it is: a ledger that balances now sees nothing."""
    with connection.cursor() as cursor:
        for table in ("receive_msg", "receive_msg_cold"):
            cursor.execute(
                f"DELETE FROM {table} WHERE biz_receive_id = %s LIMIT 1",
                [subscription],
            )
            if cursor.rowcount:
                return


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
