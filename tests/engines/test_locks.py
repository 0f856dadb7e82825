"""Locks, and ends of a transaction from outside: the error says what became of it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import Error, OperationalError, connection, transaction

from msgplatform.core.data import engines, sql, transactions
from msgplatform.core.data.engines.contract import Engine, Fault
from tests.engines.conftest import Connect, another_session, run, until
from tests.engines.tables import Item
from tests.servers import Servers
from tests.support.cutting_proxy import CuttingProxy

COLUMNS = ("id", "key", "name", "state", "claimed_by")
WRITE = "UPDATE suite_item SET state = state + 1 WHERE id = %s"


@pytest.fixture(autouse=True)
def three_items() -> None:
    sql.insert("suite_item", COLUMNS, [(n, f"k{n}", "", 0, "") for n in (1, 2, 3)])


@contextmanager
def begun(session: Any, engine: Engine) -> Iterator[None]:
    run(session, engine.begin)
    try:
        yield
    finally:
        if session.connection is not None:
            run(session, "ROLLBACK")


def impatient(session: Any, engine: Engine) -> None:
    """A session that waits a second for a lock at most."""
    session.ensure_connection()
    engine.limit_lock_wait(session, 1)


def states() -> list[int]:
    return list(Item.objects.order_by("id").values_list("state", flat=True))


# -- locks ---------------------------------------------------------------------------------------
def test_a_short_wait_for_locks_is_over_with_its_block(engine: Engine) -> None:
    if not engine.is_server:  # one lock for all rows: nothing is set
        with engine.lock_wait(connection, 1):
            return
    ask = "SELECT @@innodb_lock_wait_timeout"
    engine.limit_lock_wait(connection, 7)
    with engine.lock_wait(connection, 1):
        assert list(run(connection, ask)) == [(1,)]
    assert list(run(connection, ask)) == [(7,)]
    engine.limit_lock_wait(connection, 5)


def test_locked_rows_are_passed_over(engine: Engine) -> None:
    """SQLite has one writer: another one is refused, and comes back later."""
    statement = (
        f"SELECT id FROM suite_item WHERE state = 0 ORDER BY id LIMIT 2 {engine.skip_locked}"
    )
    with another_session() as other, begun(connection, engine):
        assert [number for (number,) in run(connection, statement)] == [1, 2]
        impatient(other, engine)
        if engine.is_server:
            with begun(other, engine):
                assert [number for (number,) in run(other, statement)] == [3]
        else:
            with pytest.raises(OperationalError) as caught, begun(other, engine):
                raise AssertionError("a second writer")
            assert engines.fault(caught.value) is Fault.LATER


def test_shared_locks_keep_writers_out_and_no_readers(engine: Engine) -> None:
    statement = f"SELECT id FROM suite_item WHERE id = 1 {engine.share_lock}"
    with another_session() as other, begun(connection, engine):
        run(connection, statement)
        impatient(other, engine)
        assert [number for (number,) in run(other, statement)] == [1]
        with pytest.raises(OperationalError) as caught:
            run(other, WRITE, [1])
    assert engines.fault(caught.value) is Fault.LATER


def test_a_wait_for_a_lock_ends(engine: Engine) -> None:
    with another_session() as other, begun(connection, engine):
        run(connection, WRITE, [1])
        impatient(other, engine)
        with pytest.raises(OperationalError) as caught:
            run(other, WRITE, [1])
    error = caught.value
    assert engines.fault(error) is Fault.LATER
    assert transactions.nothing_happened(error)
    assert transactions.is_away(error)
    assert transactions.is_of_lock(error) == engine.is_server


def test_who_does_not_want_to_wait_is_told_at_once(engine: Engine) -> None:
    rows = Item.objects.select_for_update(nowait=engine.is_server).filter(id=1)
    with another_session() as other, begun(other, engine):
        run(other, WRITE, [1])
        impatient(connection, engine)
        with pytest.raises(OperationalError) as caught, transaction.atomic():
            list(rows)
    assert engines.fault(caught.value) is Fault.LATER
    assert transactions.nothing_happened(caught.value)


def test_of_two_that_wait_for_each_other_one_goes_on(engine: Engine) -> None:
    """On SQLite the second one does not begin: it cannot hold what the first one needs."""
    errors: list[Error] = []

    def cross(session: Any, first: int, second: int) -> None:
        try:
            with begun(session, engine):
                run(session, WRITE, [first])
                if engine.is_server:
                    meeting.wait()
                run(session, WRITE, [second])
                run(session, "COMMIT")
        except Error as error:
            errors.append(error)

    meeting = threading.Barrier(2, timeout=60)
    with another_session() as one, another_session() as two:
        for session in (one, two):
            session.inc_thread_sharing()
            session.ensure_connection()
        threads = [
            threading.Thread(target=cross, args=arguments)
            for arguments in ((one, 1, 2), (two, 2, 1))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert states() == [1, 1, 0] if engine.is_server else [2, 2, 0]
    if engine.is_server:
        (error,) = errors
        assert transactions.error_code(error) == 1213
        assert transactions.nothing_happened(error)


def test_a_name_is_locked_by_one_session(engine: Engine) -> None:
    """On SQLite, whose tables are not altered while programs run, nobody needs the lock."""
    name = "archive." + "n" * 60
    with another_session() as other, engine.lock_name(connection, name) as is_first:
        assert is_first
        with engine.lock_name(other, name) as is_second:
            assert is_second != engine.is_server
    with another_session() as other, engine.lock_name(other, name) as is_third:
        assert is_third


# -- what ends it --------------------------------------------------------------------------------
def test_a_statement_that_takes_too_long_is_cut_off(engine: Engine) -> None:
    """By a limit of the server; on SQLite by the program itself."""
    endless = "SELECT COUNT(*) FROM {0} a, {0} b, {0} c, {0} d, {0} e"
    table = "information_schema.COLUMNS" if engine.is_server else "suite_many"
    if engine is engines.MARIADB:
        run(connection, "SET SESSION max_statement_time = 0.2")
    elif engine is engines.MYSQL:
        run(connection, "SET SESSION max_execution_time = 200")
    else:
        numbers = "SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000"
        run(connection, f"CREATE TEMP TABLE suite_many AS WITH RECURSIVE n(i) AS ({numbers}) "
                        "SELECT i FROM n")  # fmt: skip
        threading.Timer(0.2, connection.connection.interrupt).start()
    with pytest.raises(OperationalError) as caught:
        run(connection, endless.format(table))
    assert transactions.is_of_server(caught.value)
    assert transactions.is_away(caught.value) == engine.is_server


def test_a_server_that_says_nothing_is_not_waited_for(engine: Engine) -> None:
    """A file says something at once."""
    if not engine.is_server:
        assert run(connection, "SELECT 1") == [(1,)]
        return
    with another_session(read_timeout=1) as other, pytest.raises(OperationalError) as caught:
        run(other, "SELECT SLEEP(20)")
    assert engines.fault(caught.value) is Fault.LOST
    assert transactions.is_away(caught.value)


def test_a_frozen_transaction_loses_its_locks(engine: Engine) -> None:
    """On SQLite when its process ends, and with it its connection."""
    with another_session() as frozen:
        frozen.ensure_connection()
        engine.allow_idle_transactions(frozen, 1)
        frozen.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)
        run(frozen, WRITE, [1])
        if engine.is_server:
            assert run(connection, WRITE, [1]) == 1  # it waits for at most 5 s
            with pytest.raises(OperationalError) as caught:
                run(frozen, WRITE, [2])
            assert engines.fault(caught.value) is Fault.LOST
        else:
            frozen.connection.close()
            frozen.connection = None
            assert run(connection, WRITE, [1]) == 1
    assert states() == [1, 0, 0]


@pytest.mark.parametrize("is_stored", [True, False])
def test_the_outcome_of_a_lost_commit_is_not_known(
    is_stored: bool, engine: Engine, servers: Servers, tmp_path: Path
) -> None:
    """The answer is the same whether the server had it or not. A file's COMMIT is not lost: who is
    killed in it has stored all or nothing."""
    if not engine.is_server:
        with another_session() as other, begun(other, engine):
            run(other, WRITE, [1])
            if is_stored:
                run(other, "COMMIT")
                other.close()
        assert states() == [int(is_stored), 0, 0]
        return
    path = tmp_path / "p.sock"
    with (
        CuttingProxy(path, servers.mariadb().socket, b"\x03COMMIT", is_stored),
        another_session(unix_socket=str(path)) as other,
    ):
        other.set_autocommit(False)
        run(other, WRITE, [1])
        with pytest.raises(OperationalError) as caught:
            other.commit()
    error = caught.value
    assert engines.fault(error) is Fault.LOST
    assert not transactions.nothing_happened(error)
    until(lambda: states() == [int(is_stored), 0, 0])


def test_what_is_lost_before_commit_did_not_happen(engine: Engine) -> None:
    def lose() -> None:
        with transaction.atomic():
            run(connection, WRITE, [1])
            if engine.is_server:
                with another_session() as other:
                    run(other, f"KILL {engine.connection_id(connection)}")
            else:
                run(connection, "SELECT no_such_column FROM suite_item")
            run(connection, WRITE, [2])

    with pytest.raises(Error) as caught:
        lose()
    connection.close()
    assert states() == [0, 0, 0]
    assert transactions.nothing_happened(caught.value) == engine.is_server


def test_a_server_that_only_reads_refuses_and_loses_nothing(
    engine: Engine, servers: Servers, as_user: Connect
) -> None:
    """A file that may not be written is a matter of rights: no waiting helps."""
    session = as_user("ALL PRIVILEGES")
    if not engine.is_server:
        run(session, "PRAGMA query_only = ON")
        with pytest.raises(Error) as caught:
            run(session, WRITE, [1])
        assert engines.fault(caught.value) is Fault.REFUSED
        return
    run(session, "SELECT 1")
    servers.mariadb().execute("SET GLOBAL read_only = 1")
    try:
        with pytest.raises(Error) as caught:
            run(session, WRITE, [1])
    finally:
        servers.mariadb().execute("SET GLOBAL read_only = 0")
    assert engines.fault(caught.value) is Fault.LATER
    assert transactions.is_away(caught.value)
    assert transactions.nothing_happened(caught.value)
    assert states() == [0, 0, 0]


def test_a_full_disk_refuses_and_loses_nothing(engine: Engine) -> None:
    if engine.is_server:
        run(connection, "SET SESSION max_heap_table_size = 16384")
        run(connection, "CREATE TEMPORARY TABLE suite_full (filler CHAR(250)) ENGINE = MEMORY")
    else:
        run(connection, "CREATE TABLE suite_full (filler TEXT)")
        ((pages,),) = run(connection, "PRAGMA page_count")
        run(connection, f"PRAGMA max_page_count = {pages + 1}")
    try:
        with pytest.raises(OperationalError) as caught:
            _fill("suite_full")
    finally:
        connection.close()
        if not engine.is_server:
            run(connection, "DROP TABLE suite_full")
    assert engines.fault(caught.value) is Fault.LATER
    assert transactions.nothing_happened(caught.value)
    assert transactions.is_of_server(caught.value)


def test_a_file_that_the_server_cannot_write_is_nobody_s_value(engine: Engine) -> None:
    """A temporary one, for example, while the disk is full. SQLite has no such numbers."""
    if not engine.is_server:
        return
    with pytest.raises(OperationalError) as caught:
        run(connection, "SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 3, MESSAGE_TEXT = 'no room'")
    assert engines.fault(caught.value) is Fault.LATER
    assert transactions.is_of_server(caught.value)
    assert not transactions.nothing_happened(caught.value)


def _fill(table: str) -> None:
    for _ in range(1000):
        run(connection, f"INSERT INTO {table} VALUES (%s)", ["x" * 250])


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("SELECT 1 FROM suite_nothing", Fault.NO_TABLE),
        ("SELECT missing FROM suite_item", Fault.NO_COLUMN),
        ("INSERT INTO suite_item (missing) VALUES (1)", Fault.NO_COLUMN),
    ],
)
def test_what_is_missing_is_told_from_what_is_away(statement: str, fault: Fault) -> None:
    with pytest.raises(Error) as caught:
        run(connection, statement)
    assert engines.fault(caught.value) is fault
    assert not transactions.is_away(caught.value)


def test_a_user_without_rights_is_told_so(engine: Engine, as_user: Connect) -> None:
    """A file has no users: who may open it may do everything."""
    session = as_user("SELECT")
    assert len(run(session, "SELECT id FROM suite_item")) == 3
    if engine.is_server:
        with pytest.raises(Error) as caught:
            run(session, WRITE, [1])
        assert engines.fault(caught.value) is Fault.REFUSED
        assert transactions.nothing_happened(caught.value)
