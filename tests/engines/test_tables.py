"""Tables that change while programs work: partitions and triggers; tables of others."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection

from bench.harness.mariadb import MariaDb
from msgplatform.core.data import engines, sql, transactions
from msgplatform.core.data.engines.contract import Column, Engine, Index
from tests.engines.conftest import another_session, run
from tests.engines.tables import Noted
from tests.servers import Servers

NAMES = ("suite_on_insert", "suite_on_update")


# -- partitions ----------------------------------------------------------------------------------
@pytest.fixture
def parts(engine: Engine) -> Iterator[str]:
    """A table with partitions up to 1000, up to 2000 and beyond; on SQLite with none."""
    run(connection, "CREATE TABLE suite_part (id BIGINT NOT NULL PRIMARY KEY, note VARCHAR(20))")
    if engine.has_partitions:
        run(connection, "ALTER TABLE suite_part PARTITION BY RANGE (id) (PARTITION p1 VALUES LESS "
                        "THAN (1000), PARTITION p2 VALUES LESS THAN (2000), PARTITION pmax VALUES "
                        "LESS THAN MAXVALUE)")  # fmt: skip
    yield "suite_part"
    connection.close()
    run(connection, "DROP TABLE suite_part")


def test_partitions_are_listed_in_order(engine: Engine, parts: str) -> None:
    with connection.cursor() as cursor:
        partitions = [tuple(part) for part in engine.partitions(cursor, parts)]
        assert list(engine.partitions(cursor, "suite_item")) == []
    expected = [("p1", "1000"), ("p2", "2000"), ("pmax", "MAXVALUE")]
    assert partitions == (expected if engine.has_partitions else [])


def test_a_partition_is_dropped_while_others_write(engine: Engine, parts: str) -> None:
    """On SQLite old rows are deleted."""
    run(connection, "INSERT INTO suite_part VALUES (1, ''), (999, ''), (1000, '')")
    stopping = threading.Event()
    written: list[int] = []

    def write() -> None:
        while not stopping.is_set():
            rows = [(2000 + len(written), "")]
            transactions.retrying(partial(sql.insert, parts, ("id", "note"), rows))
            written.append(rows[0][0])
        connection.close()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while len(written) < 20:
            stopping.wait(0.01)
        with engine.lock_table(connection, parts):
            if engine.has_partitions:
                run(connection, "ALTER TABLE suite_part DROP PARTITION p1")
            else:
                run(connection, "DELETE FROM suite_part WHERE id < 1000")
        count = len(written)
        while len(written) < count + 20:
            stopping.wait(0.01)
    finally:
        stopping.set()
        writer.join(60)
    ids = [number for (number,) in run(connection, "SELECT id FROM suite_part ORDER BY id")]
    assert ids == [1000, *written]


def test_a_table_in_use_is_not_waited_for(engine: Engine, parts: str) -> None:
    """Everybody else would wait behind. A file's tables are not locked."""
    run(connection, "INSERT INTO suite_part VALUES (1, '')")
    if not engine.is_server:
        with engine.lock_table(connection, parts), another_session() as other:
            assert len(run(other, "SELECT id FROM suite_part")) == 1
        return
    with another_session() as reader:
        reader.set_autocommit(False)
        run(reader, "SELECT id FROM suite_part")
        with pytest.raises(OperationalError) as caught, engine.lock_table(connection, parts):
            raise AssertionError("locked while it is in use")
    assert transactions.is_of_lock(caught.value)
    (limits,) = run(connection, "SELECT @@lock_wait_timeout, @@wait_timeout")
    assert min(limits) > 100
    assert run(connection, "UPDATE suite_part SET note = 'x'") == 1


# -- triggers ------------------------------------------------------------------------------------
def statements(engine: Engine) -> tuple[str, str]:
    time = engine.trigger_time
    return (
        engine.insert_trigger(NAMES[0], "lead", {"changed_at": time, "version": "1"}),
        engine.update_trigger(
            NAMES[1], "lead", {"changed_at": time, "version": engine.trigger_version},
            ["id", "name"],
        ),
    )  # fmt: skip


@pytest.fixture
def triggers(engine: Engine) -> Iterator[None]:
    for statement in statements(engine):
        run(connection, statement, None)
    yield
    for name in NAMES:
        run(connection, f"DROP TRIGGER {name}")


@pytest.mark.usefixtures("triggers")
def test_triggers_set_time_and_version(engine: Engine) -> None:
    before = sql.now() - engine.clock_step
    Noted.objects.create(id=1, name="a", version=99)
    sql.insert("lead", ("id", "name", "version"), [(2, "b", 99)])
    assert set(Noted.objects.values_list("version", flat=True)) == {1}
    Noted.objects.filter(id=1).update(name="c")
    first = Noted.objects.get(id=1)
    assert first.version == pytest.approx(sql.now().timestamp(), abs=60)
    Noted.objects.filter(id=1).update(name="c")  # to what it is already
    second = Noted.objects.get(id=1)
    assert second.version > first.version or not engine.is_server
    assert first.changed_at
    assert second.changed_at
    assert before <= first.changed_at <= second.changed_at <= before + timedelta(seconds=60)


@pytest.mark.usefixtures("triggers")
def test_triggers_are_read_back_as_they_were_made(engine: Engine) -> None:
    with connection.cursor() as cursor:
        stored = engine.triggers(cursor, "lead")
    assert set(stored) == set(NAMES)
    for name, statement in zip(NAMES, statements(engine), strict=True):
        body, definer, user = stored[name]
        assert body.split() == engine.trigger_body(statement).split()
        assert definer == user


@pytest.fixture(scope="module")
def logging_server(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    kind = type(servers.mariadb())
    options: dict[str, Any] = {"log_bin": "binlog", "server_id": 1}
    with kind(Path(tmp_path_factory.mktemp("log")), options) as server:
        server.create("msgplatform")
        yield server


class TestBinaryLog:
    """A server with a binary log lets no user without SUPER make triggers; a file has neither."""

    def session(self, server: MariaDb, privileges: str) -> Any:
        for statement in (
            "DROP USER IF EXISTS suite@localhost",
            "CREATE USER suite@localhost IDENTIFIED BY 'secret'",
            f"GRANT {privileges} ON msgplatform.* TO suite@localhost",
        ):
            server.execute(statement)
        other = connection.copy()
        options = {**other.settings_dict["OPTIONS"], "unix_socket": str(server.socket)}
        other.settings_dict.update(USER="suite", PASSWORD="secret", OPTIONS=options)
        return other

    @pytest.mark.parametrize(
        ("privileges", "is_trusted", "repair"),
        [
            ("ALL PRIVILEGES", 0, "log_bin_trust_function_creators"),
            ("ALL PRIVILEGES", 1, ""),
            ("SELECT, INSERT, CREATE", 1, "Grant TRIGGER"),
        ],
    )
    def test_who_may_make_triggers_is_known_before(
        self,
        privileges: str,
        is_trusted: int,
        repair: str,
        engine: Engine,
        request: pytest.FixtureRequest,
    ) -> None:
        if not engine.is_server:
            assert engine.refused_triggers(connection) == ""
            return
        server = request.getfixturevalue("logging_server")
        server.execute(f"SET GLOBAL log_bin_trust_function_creators = {is_trusted}")
        session = self.session(server, privileges)
        try:
            run(session, "CREATE TABLE IF NOT EXISTS `lead` (id INT PRIMARY KEY, version BIGINT)")
            assert (repair in engine.refused_triggers(session)) is True
            assert bool(repair) == bool(engine.refused_triggers(session))
            statement = engine.insert_trigger("suite_probe", "lead", {"version": "1"})
            if repair:
                with pytest.raises(OperationalError) as caught:
                    run(session, statement, None)
                assert engines.fault(caught.value).name == "REFUSED"
            else:
                run(session, statement, None)
                run(session, "INSERT INTO `lead` (id) VALUES (1)")
                assert run(session, "SELECT version FROM `lead`") == ((1,),)
        finally:
            session.close()


# -- tables of others ----------------------------------------------------------------------------
def test_a_table_of_somebody_else_is_described(engine: Engine) -> None:
    time = "TIMESTAMP(6) NULL" if engine.is_server else "DATETIME"
    run(connection, f"CREATE TABLE suite_source (id BIGINT NOT NULL PRIMARY KEY, name VARCHAR(40) "
                    f"NOT NULL, changed {time})")  # fmt: skip
    run(connection, "CREATE UNIQUE INDEX suite_source_name ON suite_source (name, id)")
    run(connection, "CREATE VIEW suite_view AS SELECT id, name FROM suite_source")

    def rows(statement: str, parameters: Any = ()) -> Any:
        return run(connection, statement, parameters)

    try:
        columns, indexes, is_view = engine.describe(rows, "suite_source")
        text = "varchar" if engine.is_server else "text"
        whole = "bigint" if engine.is_server else "integer"
        assert columns[:2] == [Column("id", whole, False), Column("name", text, False)]
        assert columns[2].type in engine.time_types
        assert Index("PRIMARY", ("id",), True) in indexes
        assert Index("suite_source_name", ("name", "id"), True) in indexes
        assert not is_view
        assert engine.describe(rows, "suite_view")[2]
        assert engine.describe(rows, "suite_nothing")[0] == []
        assert engine.time_fault(rows, "suite_source", "changed") == ""
        run(connection, "INSERT INTO suite_source VALUES (1, 'a', '2026-05-04 12:30:01')")
        ((moment,),) = run(connection, f"SELECT {engine.time_text('changed')} FROM suite_source")
        assert moment.startswith("2026-05-04 12:30:01")
        with connection.cursor() as cursor:
            described = connection.introspection.get_table_description(cursor, "suite_source")
        kinds = {"changed": "timestamp"} if engine.is_server else {}  # SQLite's times are texts
        assert engine.time_kinds(described) == kinds
    finally:
        run(connection, "DROP VIEW suite_view")
        run(connection, "DROP TABLE suite_source")
