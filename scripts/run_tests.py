#!/usr/bin/env python3
"""Run the tests: several pytest side by side, each with only the folders that it runs.

    scripts/run_tests.py          as `make test`; MSGPLATFORM_FULL_LOAD=1 as `make test-full`
    scripts/run_tests.py scale    clusters: each strike SCALE_RUNS times (2), or, with
                                  SCALE_SHARE=yes, the share that `make test` runs
    scripts/run_tests.py mysql    engines, integration, crashes and a storm on MySQL, as
                                  `make test-mysql`
    scripts/run_tests.py times    write the times of the last run into tests/measured_times.json
    scripts/run_tests.py counts   write how many tests there are into tests/expected_counts.json

A test with the mark `full` runs in `make test-full` only. Most tests wait for
something most of their time, so there are more processes than cores. How tests are spread over the
processes of one pytest is in tests/spreading.py.

Integration runs on MariaDB, and the files with the mark `both_databases` on SQLite as well
(tests/database_branches.py says which have to have it). Under the full load every file does. Where
`make tools` could get a MySQL server (scripts/mysql.sh), the engines' suite and a walk through each
flow run on it.

A test that fails is run once more when everything else has ended, in a process of its own. If it
passes then, it is unsteady: the run goes on and prints both outputs, and fails from MAX_UNSTEADY
such tests on.
"""

import ast
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TIMES = ROOT / "tests" / "measured_times.json"
LAST_TIMES = ROOT / ".pytest_cache" / "measured_times.json"
COUNTS = ROOT / "tests" / "expected_counts.json"
IS_FULL = bool(os.environ.get("MSGPLATFORM_FULL_LOAD"))
IS_SHARE = os.environ.get("SCALE_SHARE") == "yes"
PYTEST = (
    *(str(ROOT / ".venv/bin/python"), "-m", "pytest"),
    *(["-o", "faulthandler_timeout=7200"] if IS_FULL else ["-m", "not full"]),
)
PROCESSES = 9  # that run tests at the same time; on two cores more of them are not quicker
MAX_UNSTEADY = 3
SHOWN_COSTS = 40
MAX_RERUNS = 10  # when more tests fail, the cause is not in the tests
# How pytest ends after it has run all tests.
PASSED, FAILED = 0, 1
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
PACKAGES = ("msgplatform", "notify", "gateway", "crmsync")
VENDORS = ("sqlite", "mysql")
MYSQL_ROOT = Path(os.environ.get("MYSQL_ROOT") or ROOT / "var" / "mysql" / "root")
QUESTIONS = ("of", "of_connection")  # for the engine of a database
BOTH_DATABASES = re.compile(r"^(pytestmark = .*|    )pytest\.mark\.both_databases\b", re.MULTILINE)
# The share judges what is lost or comes twice; on a machine that does other things it prints how
# long a failover took (tests/scale/strikes.py). A test that is missing here is an error of pytest.
SHARE_OF_CLUSTERS = (
    "tests/scale/test_galera.py::test_the_writer_is_killed[1]",
    "tests/scale/test_redis.py::test_each_master[1-kill]",
    "tests/scale/test_cells.py::test_a_database_away[1-killed]",
    "tests/scale/test_machines.py::test_systemd_accepts_every_unit",
)

# On MySQL with each change, beside the engines' suite: the demo accounts for every flow.
WALKS = ("tests/flows/test_server_demo.py",)
# They run on SQLite under the full load only.
CRASHES = (
    "tests/flows/test_notify_crash.py::test_nothing_is_lost_when_anything_is_killed_or_flushed",
    "tests/flows/test_crm_crash.py",
    "tests/flows/test_feed_crash.py::test_every_timeline_is_whole_after_kills",
)
# They judge by the clock, on a machine that does nothing else under the full load.
TIMED_FLOWS = ("tests/flows/test_feed_load.py", "tests/flows/test_notify_isolation.py")


@dataclass
class Run:
    """One pytest. `tests` are folders, files or names of tests; `processes` is 0 for none beside
    pytest's own."""

    name: str
    database: str
    processes: int
    tests: Sequence[str]
    options: Sequence[str] = ()
    environment: dict[str, str] = field(default_factory=dict)
    # Filled in at its end:
    status: int = 0
    seconds: float = 0.0
    core_seconds: float = 0.0
    output: str = ""
    record: dict[str, Any] = field(default_factory=dict)
    branches: set[str] = field(default_factory=set)
    costs: Counter[str] = field(default_factory=Counter)  # file → core-seconds

    @property
    def failures(self) -> dict[str, str]:
        """Name of a test → what pytest said of it."""
        return dict(self.record.get("failures", {}))

    def is_complete(self) -> bool:
        """True if every test was run, and it ended as these tests say."""
        return bool(self.record) and self.status == (FAILED if self.failures else PASSED)


class Runner:
    """Runs several pytest at the same time."""

    def __init__(self, folder: Path, pytest: Sequence[str], root: Path = ROOT) -> None:
        self._folder, self._pytest, self._root = folder, pytest, root
        self._running: dict[int, tuple[Run, float]] = {}
        self.orphans_core_seconds = 0.0  # of programs that nobody has waited for (`adopt`)

    def run(self, runs: Iterable[Run], processes: int = PROCESSES) -> None:
        """Each run starts when enough processes are free, in this order."""
        waiting = list(runs)
        try:
            while waiting or self._running:
                busy = sum(max(run.processes, 1) for run, _ in self._running.values())
                if waiting and (not busy or busy + max(waiting[0].processes, 1) <= processes):
                    self._start(waiting.pop(0))
                else:
                    self._await_one()
        finally:
            for pid in self._running:
                os.kill(pid, signal.SIGTERM)

    def _start(self, run: Run) -> None:
        environment = {
            **os.environ, **run.environment, "TEST_DATABASE": run.database,
            "TEST_RECORD": str(self._folder / f"{run.name}.json"),
            "MIGRATED_DATABASES": str(self._folder / "migrated" / run.database),
        }  # fmt: skip
        # Hundreds of processes would compile everything anew.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        with (self._folder / f"{run.name}.log").open("wb") as log:
            process = subprocess.Popen(  # noqa: S603 - a command line of its own
                [*self._pytest, "-n", str(run.processes), *run.options, *run.tests],
                cwd=self._root, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self._running[process.pid] = run, time.monotonic()
        print(f"{run.name} on {run.database}: started", flush=True)

    def _await_one(self) -> None:
        # It also says what the process and everything it has waited for took of the processors.
        pid, status, usage = os.wait4(-1, 0)
        if pid not in self._running:
            self.orphans_core_seconds += usage.ru_utime + usage.ru_stime
            return
        run, start = self._running.pop(pid)
        run.status = os.waitstatus_to_exitcode(status)
        run.seconds = time.monotonic() - start
        run.core_seconds = usage.ru_utime + usage.ru_stime
        run.output = (self._folder / f"{run.name}.log").read_text(errors="replace")
        record = self._folder / f"{run.name}.json"
        run.record = json.loads(record.read_text()) if record.exists() else {}
        for places in self._folder.glob(f"{run.name}.*.branches"):
            run.branches.update(places.read_text().splitlines())
        for costs in self._folder.glob(f"{run.name}.*.costs"):
            run.costs.update(json.loads(costs.read_text()))
        print(f"{run.name} on {run.database}\n{run.output}", flush=True)


def rounds() -> list[list[Run]]:
    """Rounds of runs, in each the longest first."""
    sqlite_files = ["tests/integration"] if IS_FULL else files_for_both_databases()
    flows = Run("flows", "mariadb", 3, ["tests/flows", "tests/chaos"])
    beside = [
        Run("integration", "mariadb", 3, ["tests/integration"]),
        Run("programs", "sqlite", 3, ["tests/programs"]),
        Run("browser", "sqlite", 2, ["tests/browser"]),
        Run("units", "sqlite", 0, ["tests/unit"]),
        Run("integration-sqlite", "sqlite", 2, sqlite_files),
        *engines(),
        clusters(2),
    ]
    if not IS_FULL:
        return [[flows, *beside]]
    on_sqlite = {"FLOW_DATABASES": "sqlite", "MSGPLATFORM_FULL_LOAD": ""}
    crashes = Run("crashes-sqlite", "sqlite", 1, CRASHES, environment=on_sqlite)
    files = [str(file.relative_to(ROOT)) for file in (ROOT / "tests" / "flows").rglob("test_*.py")]
    flows.tests = [*sorted(set(files) - set(TIMED_FLOWS)), "tests/chaos"]
    return [beside, [flows, crashes], [Run("timed-flows", "mariadb", 0, TIMED_FLOWS)]]


def engines() -> list[Run]:
    runs = [Run(f"engines-{kind}", kind, 0, ["tests/engines"]) for kind in ("mariadb", "sqlite")]
    if MYSQL_ROOT.is_dir():
        return [*runs, Run("mysql", "mysql", 0, ["tests/engines", *WALKS])]
    print("No MySQL server is here (scripts/mysql.sh): MySQL is not tested.", flush=True)
    return runs


def clusters(processes: int) -> Run:
    environment = {"SCALE_SHARE": "yes"}
    return Run("clusters", "sqlite", processes, SHARE_OF_CLUSTERS, ["-s"], environment)


def files_for_both_databases() -> list[str]:
    return [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "tests" / "integration").rglob("test_*.py"))
        if BOTH_DATABASES.search(path.read_text())
    ]


def scale() -> list[Run]:
    return [clusters(2) if IS_SHARE else Run("clusters", "sqlite", 0, ["tests/scale"], ["-s"])]


def mysql() -> list[Run]:
    """On a MySQL server (scripts/mysql.sh) the engines' suite, integration, the reader of sources,
    crashes of all flows and a round of chaos. TESTS names folders or files instead."""
    if tests := os.environ.get("TESTS", "").split():
        return [Run("mysql", "mysql", 3, tests)]
    crashes = [*CRASHES, "tests/flows/test_sms_crash.py", *WALKS, "tests/chaos"]
    return [
        Run("crashes", "mysql", 3, crashes),
        Run("engines", "mysql", 0, ["tests/engines"]),  # a database with its own tables only
        Run("integration", "mysql", 3, ["tests/integration"]),
        Run("sources", "mysql", 2, ["tests/programs/crmsync"]),
    ]


def reruns(runs: Iterable[Run]) -> list[tuple[Run, str]]:
    """A run for each test that failed, with what was said of it before."""
    return [
        (Run(f"rerun-{number}", run.database, 0, [name], run.options, run.environment), text)
        for number, (run, name, text) in enumerate(
            (run, name, text) for run in runs for name, text in run.failures.items()
        )
    ]


def unsteady_tests(runner: Runner, runs: Iterable[Run]) -> tuple[list[str], list[str]]:
    """Runs each test that failed once more. Returns the names of those that passed then, which
    are printed with both outputs, and of those that failed again."""
    unsteady, failing = [], []
    for run, text in reruns(runs):
        runner.run([run])
        (name,) = run.tests
        if run.status == PASSED:
            unsteady.append(f"{name} on {run.database}")
            print(f"unsteady: {name} on {run.database}\nIt failed with\n{text}\n"
                  f"and passed when it was run once more, alone: the output above.")  # fmt: skip
        else:
            failing.append(f"{name} on {run.database}")
    return unsteady, failing


def untested_branches(runs: Iterable[Run]) -> list[str]:
    """A sentence for each place of the product that asks for the engine of a database, and that no
    test with the mark has reached on each of the two."""
    reached = set().union(*(run.branches for run in runs))
    return [
        f"{path}:{lines.start} branches by database, and no test with the mark both_databases "
        f"reaches it on {vendor}: give the mark to the file that tests it"
        for path, lines in branches()
        for vendor in VENDORS
        if not reached & {f"{vendor} {path} {number}" for number in [*lines, "*"]}
    ]


def branches() -> Iterator[tuple[str, range]]:
    """Path and lines of each `engines.of…` in the product, migrations and the engines aside."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if {"migrations", "engines"} & set(path.parts):
                continue
            text = path.read_text()
            if "engines.of" in text:  # to parse every module takes seconds
                for lines in engine_lines(ast.parse(text)):
                    yield str(path.relative_to(ROOT)), lines


def engine_lines(tree: ast.Module) -> Iterable[range]:
    """The lines on which each engine may be asked for: those of the whole f-string that it is in.
    `of_config` looks at settings, and at no connection."""
    lines: dict[ast.AST, range] = {}
    for node in ast.walk(tree):  # an f-string comes before its parts
        if isinstance(node, ast.Attribute | ast.JoinedStr):
            span = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            for part in ast.walk(node):
                is_question = isinstance(part, ast.Attribute) and part.attr in QUESTIONS
                if is_question and ast.unparse(part.value) == "engines":
                    lines.setdefault(part, span)
    return lines.values()


def outcome(runner: Runner, runs: Sequence[Run], begun: float, problems: Sequence[str] = ()) -> int:
    """Run once more what failed, print the sums; the status to end with."""
    problems = [
        *problems,
        *(
            f"{run.name} on {run.database} ended with {run.status}: its output above says why"
            for run in runs
            if not run.is_complete()
        ),
    ]
    failures = [name for run in runs for name in run.failures]
    if len(failures) <= MAX_RERUNS:
        unsteady, failing = unsteady_tests(runner, runs)
    else:
        unsteady, failing = [], failures
    problems += [f"failed: {name}" for name in failing]
    if len(unsteady) >= MAX_UNSTEADY:
        problems.append(f"{len(unsteady)} unsteady tests; {MAX_UNSTEADY} are too many")
    print(table(runs, begun, runner.orphans_core_seconds))
    for name in unsteady:
        print(f"unsteady: {name}")
    for problem in problems:
        print(problem)
    passed = sum(sum(run.record.get("passed", {}).values()) for run in runs)
    print(f"{passed + len(unsteady)} passed, {len(failing)} failed", flush=True)
    return int(bool(problems))


def table(runs: Sequence[Run], begun: float, orphans_core_seconds: float) -> str:
    """Minutes, core-seconds and cases: for each run, and for each folder of tests."""
    lines = [f"{'':20}{'minutes':>9}{'core-seconds':>14}{'passed':>8}{'failed':>8}"]
    cases: Counter[str] = Counter()
    for run in runs:
        passed = Counter(run.record.get("passed", {}))
        cases += passed
        lines.append(f"{run.name:20}{run.seconds / 60:9.1f}{run.core_seconds:14.0f}"
                     f"{passed.total():8}{len(run.failures):8}")  # fmt: skip
    seconds = time.monotonic() - begun
    lines.append(f"{'orphans':20}{'':9}{orphans_core_seconds:14.0f}")
    core_seconds = sum(run.core_seconds for run in runs) + orphans_core_seconds
    lines.append(f"{'all':20}{seconds / 60:9.1f}{core_seconds:14.0f}{cases.total():8}")
    lines.append(", ".join(f"{folder} {count}" for folder, count in sorted(cases.items())))
    costs = Counter({(run.name, file): cost for run in runs for file, cost in run.costs.items()})
    lines.append("core-seconds of the costliest files:")
    lines += [f"{cost:7.0f} {name} {file}" for (name, file), cost in costs.most_common(SHOWN_COSTS)]
    return "\n".join(lines)


def adopt() -> None:
    """From now on this process is the parent of programs whose own parent has ended, as when a
    test kills it: they would be missing in the core-seconds. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def keep_times(runs: Iterable[Run]) -> None:
    """The times of these runs, for `times`. A file that ran twice counts with the longer time."""
    seconds: dict[str, float] = {}
    for run in runs:
        for name, took in run.record.get("seconds", {}).items():
            seconds[name] = max(took, seconds.get(name, 0.0))
    LAST_TIMES.parent.mkdir(exist_ok=True)
    LAST_TIMES.write_text(json.dumps(seconds))


def write_times() -> None:
    """The last run's times over those that were measured before; files that are gone have none."""
    seconds = json.loads(TIMES.read_text()) | json.loads(LAST_TIMES.read_text())
    kept = {name: took for name, took in sorted(seconds.items()) if (ROOT / name).exists()}
    TIMES.write_text(json.dumps(kept, indent=1) + "\n")


def write_counts() -> None:
    """How many tests each folder has in a clean clone of the last commit: a folder of work may hold
    files that nobody else has."""
    with tempfile.TemporaryDirectory(prefix="mp-counts-") as folder:
        clone = ["git", "clone", "--quiet", str(ROOT), folder]
        subprocess.run(clone, check=True)  # noqa: S603 - a command line of its own
        names = subprocess.run(  # noqa: S603 - the same
            [*PYTEST, "--collect-only", "--quiet", "tests"], cwd=folder, check=True,
            env={**os.environ, "CI": ""}, stdout=subprocess.PIPE, text=True,
        ).stdout  # fmt: skip
    folders = re.findall(r"^tests/(\w+)/.*::", names, re.MULTILINE)
    COUNTS.write_text(json.dumps(Counter(folders), sort_keys=True) + "\n")


def main(arguments: Sequence[str]) -> int:
    writers = {"times": write_times, "counts": write_counts}
    other_rounds = {"scale": scale, "mysql": mysql}
    if arguments and (len(arguments) > 1 or arguments[0] not in writers | other_rounds):
        sys.exit(__doc__)
    if arguments and (write := writers.get(arguments[0])):
        write()
        return 0
    all_rounds = [other_rounds[arguments[0]]()] if arguments else rounds()
    pytest = [*PYTEST, "--durations=15", "--durations-min=5"]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    adopt()
    folder, begun = Path(tempfile.mkdtemp(prefix="mp-run-")), time.monotonic()
    try:
        runner = Runner(folder, pytest)
        for runs in all_rounds:
            runner.run(runs)
        runs = [run for runs in all_rounds for run in runs]
        keep_times(runs)
        problems = [] if arguments else untested_branches(runs)
        return outcome(runner, runs, begun, problems)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
