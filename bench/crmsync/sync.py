"""The hive into the table of a CRM: a first load, and the leads that change afterwards."""

import time
from collections.abc import Sequence
from typing import Any

from bench.crmsync import leads
from bench.harness.batch import Batch
from bench.harness.ground import Ground
from bench.harness.processes import BenchFailed, Crew, Program
from bench.harness.programs.progress import Progress
from bench.references import environment
from crmsync.models import Crm, Policy, Source
from crmsync.models.sources import HIVE
from msgplatform.core.connections import work_redis
from msgplatform.models import MinuteCounter

NAME = "sync"
ORDER = 100
ABOUT = (
    "The platform's own hive into a table of another database of the same server: first all "
    "leads, then the tenth of them that changed, some of which were deleted softly. What is "
    "copied is committed at once, and the clock runs until the table equals the hive. Ours are "
    "one `run_sync_poller` and one `run_sync_handler`, with a policy that looks every second; "
    "their clock starts when the poller has looked, that of a reference when its run is called."
)
REASONS = {
    "dlt-sqlalchemy": (
        "Ours writes a record and an operation for each row, and marks each answer."
    ),
    "dlt-pyarrow": (
        "Ours writes a record and an operation for each row, and marks each answer; Arrow's "
        "rows are never Python objects."
    ),
}
UNIT = "rows/s"
INITIAL, CHANGED = "initial load", "changed rows"
ROWS_A_SECOND = 20_000  # as many leads for each second of `--seconds`
PARTS = 10  # one lead in so many changes
WARM = 200  # leads that go through both parts before the clock starts
CRM = "crm"  # the CRM's database
TABLE = "lead"
_SAMPLED = 49  # of so many leads it asks of one first whether it is there: a page has more
_LOOKED_AT = 50  # leads of the sample that a look asks for
_LOOK_SECONDS = 0.05
_MAX_SECONDS = 600.0  # for a part; then what is left is lost


class Copy(Batch):
    """What all sides have in common: the leads, and the check."""

    parts: Sequence[str] = (INITIAL, CHANGED)
    tables: Sequence[str] = (f"{CRM}.{TABLE}",)

    def prepare(self) -> None:
        server = self.ground.server
        self._rows = max(WARM, int(self.seconds * ROWS_A_SECOND))
        self._turn = 0
        for database in (CRM, f"{CRM}_staging"):
            server.execute(f"DROP DATABASE IF EXISTS {database}")
        server.execute(f"CREATE DATABASE {CRM}")
        self.hive = server.connect("bench")
        self.hive.set_character_set("utf8mb4")
        with self.hive.cursor() as cursor:
            leads.empty(cursor)

    def warm_up(self, crew: Crew) -> None:
        """A few leads go through both parts."""
        for part in self.parts:
            self._give(part, WARM, 0)
            self.wait(crew)
        self.check(crew)

    def give(self, part: str) -> int:
        return self._give(part, self._rows, WARM)

    def _give(self, part: str, count: int, before: int) -> int:
        with leads.old_when_committed(self.hive) as cursor:
            if part == INITIAL:
                leads.fill(cursor, count, before)
                units, numbers = count, range(before + 1, before + count + 1)
            else:
                self._turn += 1
                units = leads.change(cursor, before + count, PARTS, self._turn)
                first = self._turn % PARTS or PARTS
                numbers = range(first, before + count + 1, PARTS)
        self.sample = [leads.lead_id(number) for number in (*numbers[::_SAMPLED], numbers[-1])]
        self.given = time.monotonic()
        self.ask()
        return units

    def ask(self) -> None:
        """Let a reference begin to copy what was given."""

    def check(self, crew: Crew) -> None:
        with self.hive.cursor() as cursor:
            for table in self.tables:
                leads.check_equal(cursor, "bench.lead", table)


class Ours(Copy):
    """Our processes, as an operator starts them."""

    policies = 1  # each for a CRM of its own

    def prepare(self) -> None:
        super().prepare()
        empty(self.hive)
        self.tables = [make_policy(self.ground, number) for number in range(self.policies)]

    def programs(self) -> Sequence[Program]:
        return [self.ground.daemon("run_sync_handler"), self.ground.daemon("run_sync_poller")]

    def wait(self, crew: Crew) -> float:
        """Compare some leads of each page, a few in a look, and all of them only when those are
        there: looks at the whole sample were a third of MariaDB's time."""
        sample = [str(pk) for pk in self.sample]
        with self.hive.cursor() as cursor:
            while True:
                while sample:
                    first = ", ".join(sample[:_LOOKED_AT])
                    if self._behind(cursor, f"WHERE h.id IN ({first})"):
                        break
                    del sample[:_LOOKED_AT]
                now = time.monotonic()
                if not sample and not self._behind(cursor, ""):
                    break
                crew.check()
                if now > self.given + _MAX_SECONDS:
                    left = self._behind(cursor, "")
                    raise BenchFailed(f"{left} leads are not copied\n{crew.output()}")
                time.sleep(_LOOK_SECONDS)
            cursor.execute(
                "SELECT TIMESTAMPDIFF(MICROSECOND, MAX(started_at), UTC_TIMESTAMP(6)) FROM sync_run"
            )
            # When the poller began to read, by its own record: until then it only waited.
            looked: float = time.monotonic() - cursor.fetchone()[0] / 1e6
        return now - max(self.given, looked)

    def _behind(self, cursor: Any, which: str) -> int:
        """How many leads a CRM does not have in the hive's version; of the first CRM behind."""
        for table in self.tables:
            cursor.execute(
                f"SELECT COUNT(*) - COUNT(c.id) FROM bench.lead h LEFT JOIN {table} c "
                f"ON c.id = h.id AND c.version = h.version {which}"
            )
            if count := int(cursor.fetchone()[0]):
                return count
        return 0


class DltSqlalchemy(Copy):
    """dlt with its backend `sqlalchemy` (rows as Python objects), in an environment of its own:
    `sql_table` with an incremental cursor on UpdateTime, the destination `sqlalchemy`, write
    disposition `merge` by primary key. It runs again and again in one warm process.
    """

    name = "dlt-sqlalchemy"
    backend = "sqlalchemy"

    def programs(self) -> Sequence[Program]:
        self._asked = Progress(self.ground.file("dlt.asked"))
        self._done = Progress(self.ground.file("dlt.done"))
        python = environment.locked_python("dlt")
        argv = [
            *(python, "-m", "bench.references.dlt_sync", "--backend", self.backend),
            *("--asked", self._asked.file, "--progress", self._done.file),
            *("--source", self._url("bench"), "--target", self._url(CRM), "--dataset", CRM),
            *("--state", self.ground.folder / f"dlt-{self.stretch}"),
        ]
        return [Program("dlt", list(map(str, argv)), self.ground.environment)]

    def _url(self, database: str) -> str:
        url = self.ground.server.url(database).replace("mysql://", "mysql+mysqldb://")
        return f"{url}&charset=utf8mb4"

    def ask(self) -> None:
        self._asked.add(1)

    def wait(self, crew: Crew) -> float:
        while self._done.count < self._asked.count:
            crew.check()
            time.sleep(self.poll_seconds)
        return time.monotonic() - self.given


class DltPyarrow(DltSqlalchemy):
    """The same with the backend `pyarrow`: rows as Arrow tables, in Parquet files."""

    name = "dlt-pyarrow"
    backend = "pyarrow"


def sides() -> list[type[Copy]]:
    return [Ours, DltSqlalchemy, DltPyarrow]


def make_policy(ground: Ground, number: int) -> str:
    """Make a CRM and a policy that looks every second; the CRM's table, with the time at which a
    row came first."""
    table = f"{TABLE}{number or ''}"
    ground.server.execute(
        f"CREATE TABLE {CRM}.{table} (id BIGINT PRIMARY KEY, appkey VARCHAR(64), "
        "uid VARCHAR(64), name VARCHAR(100), phone VARCHAR(32), extra LONGTEXT, "
        "is_delete TINYINT(1) NOT NULL DEFAULT 0, version INT, "
        "came_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)) CHARACTER SET utf8mb4"
    )
    crm = Crm.objects.create(
        name=f"{CRM}{number or ''}", adapter="sql", credentials={"url": ground.server.url(CRM)},
        settings={"table": table, "deleted_column": "is_delete"},
    )  # fmt: skip
    Policy.objects.create(
        source=Source.objects.get(name=HIVE), crm=crm, interval_seconds=1,
        mapping="\n".join(f"{theirs} = {ours}" for ours, theirs in leads.FIELDS.items()),
    )  # fmt: skip
    return f"{CRM}.{table}"


def empty(connection: Any) -> None:
    """Delete CRMs, policies, all records of copying and their counters, which the guard of removals
    reads: the next policy has the same id. The hive stays a source."""
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION foreign_key_checks = 0")
        for table in (
            "sync_policy", "crm", "sync_watermark", "sync_run", "sync_record", "sync_operation",
            "sync_item", "recovery_log", "exception_log", MinuteCounter._meta.db_table,
        ):  # fmt: skip
            cursor.execute(f"TRUNCATE TABLE {table}")
        cursor.execute("SET SESSION foreign_key_checks = 1")
    work_redis().flushall()
