"""What the horizon sees, step by step, on a real MariaDB: who writes, waits, reads, and when."""

import itertools
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from bench.harness.mariadb import MariaDb, numbers
from bench.harness.plans import read_plan
from crmsync.poller.reading import horizon
from crmsync.poller.reading.database import Database
from crmsync.poller.reading.increment import WAITING_CAP, Increment, Row, Watermark
from crmsync.poller.reading.source import Source, SourceUnavailable
from tests.servers import DatabaseServer
from tests.support.lead_tables import INSERT, LEADS, MYSQL_TABLE
from tests.support.sources import NAME, SECONDS, Follower, run_as_owner

MakeSource = Callable[..., Source]
POLICIES = 40
SIZES = (1_000, 5_000_000 if os.environ.get("MSGPLATFORM_FULL_LOAD") else 200_000)


@contextmanager
def session(mariadb: MariaDb) -> Iterator[Any]:
    with closing(mariadb.connect(NAME)) as opened:
        yield opened.cursor()


@contextmanager
def statement_log(mariadb: MariaDb) -> Iterator[Callable[[], list[str]]]:
    """Let the server log its statements; what it has logged so far."""
    mariadb.execute("SET GLOBAL log_output = 'TABLE'")
    mariadb.execute("SET GLOBAL general_log = ON")
    try:
        yield lambda: [
            str(text) for (text,) in mariadb.execute("SELECT argument FROM mysql.general_log")
        ]
    finally:
        mariadb.execute("SET GLOBAL general_log = OFF")
        mariadb.execute("TRUNCATE TABLE mysql.general_log")


def insert(uid: str) -> str:
    return INSERT.format(uid=uid)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.15)


def test_an_open_transaction_stops_the_horizon(foreign: MakeSource, mariadb: MariaDb) -> None:
    follower = Follower(foreign())
    with session(mariadb) as late:
        late.execute("BEGIN")
        late.execute(insert("late"))
        run_as_owner(mariadb, insert("early"))
        seen: list[str] = []

        def is_old() -> bool:
            seen.extend(follower.uids())
            assert follower.page
            return follower.page.facts.age > timedelta(seconds=6)

        until(is_old)
        assert follower.page
        assert seen == []
        assert follower.page.facts.waiting == 1
        assert follower.page.facts.exact
        late.execute("COMMIT")
        assert follower.until("late", "early") == ["late", "early"]


def test_a_transaction_that_only_reads_stops_nothing(foreign: MakeSource, mariadb: MariaDb) -> None:
    follower = Follower(foreign())
    with session(mariadb) as reader:
        reader.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        reader.execute("SELECT COUNT(*) FROM `lead`")
        run_as_owner(mariadb, insert("a"))
        assert follower.until("a") == ["a"]
        # It writes after all: the horizon goes back, the watermark does not.
        reader.execute(insert("b"))
        mark = follower.watermark
        assert follower.uids() == []
        assert follower.watermark == mark
        reader.execute("COMMIT")
        assert follower.until("b") == ["b"]


@pytest.mark.parametrize(
    "statement",
    [
        insert("late"),
        insert("late")
        .replace("VALUES (", "SELECT * FROM (SELECT ")
        .replace("'{}')", "'{}' AS e) v"),
    ],
    ids=["values", "select"],
)
def test_a_statement_that_waits_for_the_table(
    statement: str, foreign: MakeSource, mariadb: MariaDb
) -> None:
    """It has its time already, and no transaction yet."""
    follower = Follower(foreign())
    with session(mariadb) as owner, session(mariadb) as writer:
        owner.execute("LOCK TABLES `lead` READ")
        thread = threading.Thread(target=writer.execute, args=[statement])
        thread.start()
        try:
            until(
                lambda: bool(
                    mariadb.execute(
                        "SELECT 1 FROM information_schema.PROCESSLIST "
                        "WHERE STATE = 'Waiting for table metadata lock' AND TIME >= 5"
                    )
                )
            )
            assert follower.uids() == []
            assert follower.page
            assert follower.page.facts.age > timedelta(seconds=5)
        finally:
            owner.execute("UNLOCK TABLES")
            thread.join()
        run_as_owner(mariadb, insert("next"))
        assert follower.until("late", "next") == ["late", "next"]


def test_a_statement_that_takes_long_before_it_writes(
    foreign: MakeSource, mariadb: MariaDb
) -> None:
    follower = Follower(foreign())
    slow = (
        "INSERT INTO `lead` (appkey, uid, name, phone, extra) "
        "SELECT 'demo', 'slow', 'n', '13', x.s FROM (SELECT SLEEP(5) AS s) AS x"
    )
    with session(mariadb) as writer:
        thread = threading.Thread(target=writer.execute, args=[slow])
        thread.start()
        run_as_owner(mariadb, insert("quick"))
        found = follower.until("quick")
        thread.join()
        found += follower.until("slow") if "slow" not in found else []
    assert sorted(found) == ["quick", "slow"]


def test_what_a_stored_event_writes(foreign: MakeSource, mariadb: MariaDb) -> None:
    """A nightly import that sorts first: its statement has its time, and has written nothing."""
    follower = Follower(foreign())
    mariadb.execute("SET GLOBAL event_scheduler = ON")
    try:
        run_as_owner(
            mariadb,
            "CREATE EVENT import ON SCHEDULE AT CURRENT_TIMESTAMP DO "
            "INSERT INTO `lead` (appkey, uid, name, phone, extra) "
            "SELECT 'demo', 'import', 'n', '13', x.s FROM (SELECT SLEEP(6) AS s) AS x",
        )
        until(
            lambda: bool(
                mariadb.execute(
                    "SELECT 1 FROM information_schema.PROCESSLIST WHERE STATE = 'User sleep' "
                    f"UNION ALL SELECT 1 FROM {NAME}.lead"  # its sleep was over between two looks
                )
            )
        )
        time.sleep(1)
        run_as_owner(mariadb, insert("quick"))
        assert follower.until("quick", "import") == ["import", "quick"]
        assert follower.page
        assert follower.page.facts.exact
    finally:
        mariadb.execute("SET GLOBAL event_scheduler = OFF")


# Renewed only when nobody has asked for a tenth of a second; several ask, in the server itself, so
# that a busy machine does not make them late.
ASKERS = 3
ASK = """
CREATE PROCEDURE ask() BEGIN
  DECLARE n INT;
  WHILE GET_LOCK('enough', 0) = 0 DO
    SELECT COUNT(*) INTO n FROM information_schema.INNODB_TRX;
    DO SLEEP(0.01);
  END WHILE;
  DO RELEASE_LOCK('enough');
END
"""


def test_an_old_copy_of_the_transactions_is_not_believed(
    foreign: MakeSource, mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While somebody asks for INNODB_TRX all the time the server does not renew it."""
    follower = Follower(foreign())
    run_as_owner(mariadb, ASK)
    # A machine that stands still for a moment makes a new copy: then it is tried again.
    for attempt in itertools.count():
        late, following = f"late{attempt}", f"next{attempt}"
        with monkeypatch.context() as patch:
            # So long the server must not renew the copy: a busy machine makes others ask late.
            patch.setattr(horizon, "_RENEWALS", 3)
            is_refused = _is_refused_while_others_ask(follower, mariadb, late, following)
        if is_refused:
            break
        assert attempt < 5
        assert follower.until(late, following) == [late, following]
    assert follower.until(late, following) == [late, following]


def _is_refused_while_others_ask(
    follower: Follower, mariadb: MariaDb, late: str, following: str
) -> bool:
    with ExitStack() as stack, ThreadPoolExecutor(ASKERS) as pool:
        until_enough = stack.enter_context(session(mariadb))
        until_enough.execute("SELECT GET_LOCK('enough', 10)")
        for _ in range(ASKERS):
            pool.submit(stack.enter_context(session(mariadb)).execute, "CALL ask()")
        try:
            time.sleep(0.3)  # the copy is made
            writer = stack.enter_context(session(mariadb))
            writer.execute("BEGIN")
            writer.execute(insert(late))
            time.sleep(3)  # longer than the margin
            run_as_owner(mariadb, insert(following))
            time.sleep(3)
            follower.read()
        except SourceUnavailable as error:
            return "INNODB_TRX" in str(error)
        finally:
            writer.execute("COMMIT")
            until_enough.execute("DO RELEASE_LOCK('enough')")
    return False


def test_many_policies_of_one_server_share_a_horizon(foreign: MakeSource, mariadb: MariaDb) -> None:
    """Each that asks for INNODB_TRX would keep the server's copy of it old for the others."""
    source, ready = foreign(), threading.Barrier(POLICIES + 1)

    def read_on() -> list[str]:
        try:
            follower = Follower(source)
            ready.wait(SECONDS)
            return follower.until("a")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(POLICIES) as pool, statement_log(mariadb) as log:
        readers = [pool.submit(read_on) for _ in range(POLICIES)]
        ready.wait(SECONDS)
        began = time.monotonic()
        run_as_owner(mariadb, insert("a"))
        assert [reader.result(SECONDS) for reader in readers] == [["a"]] * POLICIES
        asked = [text for text in log() if "FROM information_schema.INNODB_TRX" in text]
        assert 0 < len(asked) <= 1 + 5 * (time.monotonic() - began)


def test_equal_times_page_by_page(foreign: MakeSource, mariadb: MariaDb) -> None:
    source = foreign()
    rows = ", ".join(
        f"('demo', 'u{n}', 'n', '13', '{{}}', '2026-01-01 00:00:00.{n // 40:06d}')"
        for n in range(100)
    )
    run_as_owner(
        mariadb, f"INSERT INTO `lead` (appkey, uid, name, phone, extra, UpdateTime) VALUES {rows}"
    )
    follower = Follower(source, limit=7)
    found: list[str] = []
    sizes = []
    while not follower.page or follower.page.more:
        found += follower.uids()
        assert follower.page
        sizes.append(len(follower.page.rows))
    assert found == [f"u{n}" for n in range(100)]
    assert sizes == [7] * 14 + [2]
    assert follower.uids() == []


def test_a_row_that_changes_while_it_is_read_is_read_once_more(
    foreign: MakeSource, mariadb: MariaDb
) -> None:
    follower = Follower(foreign(), limit=1)
    run_as_owner(mariadb, insert("a"), insert("b"), insert("c"))
    assert follower.until("a") == ["a"]
    run_as_owner(
        mariadb,
        "UPDATE `lead` SET version = version + 1 WHERE uid = 'a'",
        "UPDATE `lead` SET version = version + 1, IsDelete = 1 WHERE uid = 'c'",
    )
    rows: list[Row] = []
    until(lambda: bool(rows.extend(follower.read()) or len(rows) == 3))
    assert [(row.values["uid"], row.version, row.deleted) for row in rows] == [
        ("b", 1, False),
        ("a", 2, False),
        ("c", 2, True),
    ]


def test_the_same_rows_come_again_until_they_are_stored(
    foreign: MakeSource, mariadb: MariaDb
) -> None:
    """Also those that are read early, where the horizon is only assumed."""
    increment = Increment(foreign(process=False))
    run_as_owner(mariadb, insert("a"))
    page = increment.read(None, 10)

    def is_read() -> bool:
        nonlocal page
        page = increment.read(None, 10)
        return bool(page.rows)

    until(is_read)
    assert page.watermark is None  # it is beyond the assumed horizon
    assert not page.facts.exact
    assert increment.read(None, 10).rows == page.rows
    increment.confirm(page)
    assert increment.read(None, 10).rows == []
    run_as_owner(mariadb, "UPDATE `lead` SET version = 2")
    until(is_read)
    assert [row.version for row in page.rows] == [2]


def test_a_future_time_waits(foreign: MakeSource, mariadb: MariaDb) -> None:
    follower = Follower(foreign())
    run_as_owner(
        mariadb,
        insert("a"),
        "INSERT INTO `lead` (appkey, uid, name, phone, extra, UpdateTime) SELECT 'demo', seq, 'n',"
        f" '13', '', '2036-01-01' FROM {numbers(1, WAITING_CAP + 5)} n",
    )
    assert follower.until("a") == ["a"]
    assert follower.page
    assert follower.page.facts.waiting == WAITING_CAP


def test_the_servers_clock_goes_back(foreign: MakeSource, mariadb: MariaDb) -> None:
    """A fact, until reading has gone back too."""
    source = foreign()
    run_as_owner(mariadb, insert("a"))
    follower = Follower(source)
    follower.until("a")
    increment, mark = follower.increment, follower.watermark
    Database(source).rows("SET timestamp = UNIX_TIMESTAMP() - 3600")
    time.sleep(0.3)
    page = increment.read(mark, 10)
    assert page.rows == []
    assert page.watermark == mark
    assert timedelta(minutes=59) < page.facts.clock_back < timedelta(minutes=61)
    # Who starts anew sees it from the watermark.
    again = Increment(source).read(mark, 10)
    assert timedelta(minutes=59) < again.facts.clock_back < timedelta(minutes=61)
    Database(source).rows("SET timestamp = DEFAULT")
    time.sleep(0.3)
    page = increment.read(mark, 10)
    assert page.facts.clock_back > timedelta(minutes=59)
    run_as_owner(mariadb, "SET timestamp = UNIX_TIMESTAMP() - 3630", insert("b"))
    assert mark is not None
    earlier = increment.before(mark, page.facts.clock_back)
    increment.forget_step_back()
    page = increment.read(earlier, 10)
    assert [row.values["uid"] for row in page.rows] == ["b", "a"]
    assert page.facts.clock_back == timedelta(0)


def test_an_empty_poll_costs_the_same_in_a_large_table(
    foreign: MakeSource, mariadb: MariaDb
) -> None:
    """Nor does a page in the midst of rows of equal time."""
    source = foreign()
    costs = []
    for size in SIZES:
        run_as_owner(
            mariadb,
            "INSERT INTO `lead` (appkey, uid, name, phone, extra, UpdateTime) SELECT 'demo', seq, "
            "'n', '13', '', TIMESTAMPADD(MICROSECOND, seq DIV 500, '2026-01-01') "
            f"FROM {numbers(1, size)} n",
            "ANALYZE TABLE `lead`",
        )
        increment = Increment(source)
        assert increment.is_indexed
        newest = mark_at(mariadb, "ORDER BY UpdateTime DESC, id DESC")
        middle = mark_at(mariadb, f"WHERE uid = {size // 2 + 100}")
        costs.append([rows_read(source, increment, mark, 100) for mark in (newest, middle)])
        plan = plan_of(source, newest)
        assert plan["type"] == "range"
        assert int(plan["rows"]) <= 2
        assert "filesort" not in plan["Extra"]
    (few, page), (as_few, same_page) = costs
    assert few == as_few <= 30  # of the tables of processes and transactions
    assert page == same_page <= 130


def mark_at(mariadb: MariaDb, which: str) -> Watermark:
    with session(mariadb) as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute(f"SELECT CAST(UpdateTime AS CHAR), id FROM `lead` {which} LIMIT 1")
        return Watermark(*cursor.fetchone())


def rows_read(source: Source, increment: Increment, mark: Watermark, limit: int) -> int:
    """How many rows the server read for a page, of whatever table. At least: connections that are
    about to end are among the processes for a while."""
    database = Database(source)
    pages = []
    for _ in range(3):
        time.sleep(0.25)  # the horizon is asked for each time
        counts = []
        for _ in range(2):
            counters = database.rows("SHOW SESSION STATUS LIKE 'Handler_read%%'")
            counts.append(sum(int(value) for _, value in counters))
            increment.read(mark, limit)
        pages.append(counts[1] - counts[0])
    return min(pages)


def plan_of(source: Source, mark: Watermark) -> dict[str, Any]:
    database = Database(source)
    statements: list[tuple[str, Any]] = []

    def note(execute: Any, statement: str, params: Any, many: bool, context: Any) -> Any:
        statements.append((statement, params))
        return execute(statement, params, many, context)

    with database.connection.execute_wrapper(note):
        Increment(source).read(mark, 500)
    ((statement, parameters),) = [one for one in statements if "ORDER BY `UpdateTime`" in one[0]]
    with database.connection.cursor() as cursor:
        (plan,) = read_plan(cursor, statement, parameters, using=database.alias)
    return plan


# Without summer time: in the hour that comes twice the horizon is an hour older.
@pytest.mark.parametrize("zone", ["Asia/Shanghai", "America/Bogota"])
def test_a_server_whose_system_is_in_another_zone(
    zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`trx_started` is in the zone of the server's operating system, whatever its own setting."""
    monkeypatch.setenv("TZ", zone)
    directory = Path(tempfile.mkdtemp(prefix="mp-tz-"))  # short, for the socket
    server = DatabaseServer(directory, {"default_time_zone": "+05:45"})
    try:
        server.start()
        monkeypatch.delenv("TZ")
        url = server.create(NAME)
        run_as_owner(server, MYSQL_TABLE.format(table="`lead`", kind="TIMESTAMP(6)"))
        follower = Follower(Source("lead", LEADS, url))
        with session(server) as late:
            late.execute("BEGIN")
            late.execute(insert("late"))
            run_as_owner(server, insert("early"))
            until(lambda: follower.uids() == [] and age_of(follower) > timedelta(seconds=4))
            assert age_of(follower) < timedelta(seconds=SECONDS)
            late.execute("COMMIT")
        assert follower.until("late", "early") == ["late", "early"]
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)


def age_of(follower: Follower) -> timedelta:
    assert follower.page
    return follower.page.facts.age
