"""Many policies on one server: first loads side by side, and how long a row takes to every CRM."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from bench.crmsync import leads, sync
from bench.harness.ground import ROOT, Ground
from bench.harness.measure import Side
from bench.harness.processes import BenchFailed, Crew

NAME = "sync-policies"
ORDER = 101
ABOUT = (
    "The hive into the tables of four CRMs, by a policy for each: their first loads side by side, "
    "and beside them the first load of one. Then a lead comes each half second while so many "
    "policies look every second: the seconds until a CRM has it. The safe horizon lies two to "
    "three seconds back. One `run_sync_poller` and one `run_sync_handler`."
)
UNIT = sync.UNIT
_POLICIES = (1, 40)
_LEADS, _PAUSE_SECONDS = 20, 0.5
_MAX_SECONDS = 180.0


class FourPolicies(sync.Ours):
    """Four first loads side by side; the rate is that of all rows that the CRMs get."""

    policies = 4
    parts = (sync.INITIAL,)

    def give(self, part: str) -> int:
        return super().give(part) * self.policies


class OnePolicy(FourPolicies):
    """The first load of one policy."""

    name = "one-policy"
    policies = 1


def sides() -> list[type[Side]]:
    return [FourPolicies, OnePolicy]


def facts(ground: Ground) -> dict[str, Any]:
    """Median and maximum of the seconds that a row takes, by the number of policies."""
    return {"row_seconds": {str(count): _row_seconds(ground, count) for count in _POLICIES}}


def _row_seconds(ground: Ground, policies: int) -> list[float]:
    ground.server.execute(f"DROP DATABASE IF EXISTS {sync.CRM}")
    ground.server.execute(f"CREATE DATABASE {sync.CRM}")
    hive = ground.server.connect("bench")
    hive.set_character_set("utf8mb4")
    hive.autocommit(True)
    sync.empty(hive)
    with hive.cursor() as cursor:
        leads.empty(cursor)
        tables = [sync.make_policy(ground, number) for number in range(policies)]
        programs = [ground.daemon("run_sync_handler"), ground.daemon("run_sync_poller")]
        with Crew(programs, ground.folder, ROOT) as crew:
            leads.fill(cursor, 1)
            _await_all(cursor, crew, tables, 1)  # all of them are warm
            for number in range(1, _LEADS + 1):
                time.sleep(_PAUSE_SECONDS)
                leads.fill(cursor, 1, number)
            _await_all(cursor, crew, tables, _LEADS + 1)
        seconds: list[float] = []
        for table in tables:
            cursor.execute(
                "SELECT TIMESTAMPDIFF(MICROSECOND, h.UpdateTime, "
                "CONVERT_TZ(c.came_at, @@session.time_zone, '+00:00')) / 1e6 "
                f"FROM `lead` h JOIN {table} c ON c.id = h.id ORDER BY h.id LIMIT 1, {_LEADS}"
            )
            seconds += [float(second) for (second,) in cursor.fetchall()]
    seconds.sort()
    return [round(seconds[len(seconds) // 2], 2), round(seconds[-1], 2)]


def _await_all(cursor: Any, crew: Crew, tables: Sequence[str], count: int) -> None:
    deadline = time.monotonic() + _MAX_SECONDS
    counts = ", ".join(f"(SELECT COUNT(*) FROM {table})" for table in tables)
    while True:
        cursor.execute(f"SELECT {counts}")
        row = cursor.fetchone()
        if min(row) >= count:
            return
        crew.check()
        if time.monotonic() > deadline:
            raise BenchFailed(f"rows are missing: {row}\n{crew.output()}")
        time.sleep(0.2)


def details(result: Mapping[str, Any]) -> list[str]:
    return [
        "",
        "| policies | a row takes, median | maximum |",
        "|---:|---:|---:|",
        *(
            f"| {count} | {median:g} s | {maximum:g} s |"
            for count, (median, maximum) in result["row_seconds"].items()
        ),
    ]
