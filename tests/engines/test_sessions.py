"""Sessions: their clock, zone and isolation, whatever the server has; connections that end."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction

from msgplatform.core.data import engines, sql, transactions
from msgplatform.core.data.engines.contract import Engine, Fault
from tests.engines.conftest import another_session, run, until
from tests.engines.tables import Item, Value
from tests.servers import Servers

# Times that clocks on a wall skip, show twice, or cannot show later.
MOMENTS = [
    datetime(2026, 3, 29, 2, 30, tzinfo=UTC),
    datetime(2026, 10, 25, 1, 30, 0, 1, tzinfo=UTC),
    datetime(2026, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(2038, 1, 19, 3, 14, 8, tzinfo=UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
]


def test_the_clock_is_utc_whatever_the_server_s_zone_is(engine: Engine) -> None:
    before, now, after = datetime.now(UTC), sql.now(), datetime.now(UTC)
    assert before - engine.clock_step <= now <= after + engine.clock_step


@pytest.mark.parametrize("seconds", [0.0, 90.5, -3600.0])
def test_times_of_the_database_compare_with_those_of_models(seconds: float, engine: Engine) -> None:
    before = sql.now()
    run(connection, f"INSERT INTO suite_value (id, text, moment, content) "
                    f"VALUES (%s, '', {engine.now(seconds)}, %s)", [1, b""])  # fmt: skip
    moment = Value.objects.get().moment
    assert moment
    late = timedelta(seconds=30)
    assert before - engine.clock_step <= moment - timedelta(seconds=seconds) <= before + late
    assert Value.objects.filter(moment__gt=sql.now()).exists() == (seconds > 0)


def test_the_age_of_a_time(engine: Engine) -> None:
    Value.objects.create(id=1, moment=sql.now() - timedelta(hours=1))
    ((age,),) = run(connection, f"SELECT {engine.age('MIN(moment)')} FROM suite_value")
    assert 3599 < float(age) < 3660


@pytest.mark.parametrize("moment", MOMENTS, ids=str)
def test_a_moment_comes_back_as_it_was(moment: datetime) -> None:
    Value.objects.create(id=1, moment=moment)
    sql.insert("suite_value", ("id", "text", "moment", "content"), [(2, "", moment, b"")])
    assert set(Value.objects.values_list("moment", flat=True)) == {moment}
    assert Value.objects.filter(moment=moment).count() == 2


def test_times_sort_as_moments_where_the_engine_says_so(engine: Engine) -> None:
    """On SQLite .5 and .500000 are two texts for one moment: there nobody pages by time alone."""
    at = datetime(2026, 5, 4, 12, 30, 1, 500000, tzinfo=UTC)
    Value.objects.create(id=1, moment=at)
    written = "2026-05-04 12:30:01.5"
    run(connection, "INSERT INTO suite_value (id, text, moment, content) VALUES (2, '', %s, %s)",
        [written, b""])  # fmt: skip
    assert (Value.objects.filter(moment=at).count() == 2) == engine.has_exact_times


@pytest.mark.usefixtures("foreign_defaults")
class TestForeignDefaults:
    """SQLite has none of these settings; its sessions are as they are."""

    @pytest.fixture
    def foreign_defaults(self, request: pytest.FixtureRequest, engine: Engine) -> None:
        if engine.is_server:
            request.getfixturevalue("_foreign_server")

    @pytest.fixture
    def _foreign_server(self, servers: Servers) -> Iterator[None]:
        server = servers.mariadb()
        isolation = "transaction_isolation" if engines.of() is engines.MYSQL else "tx_isolation"
        wrong = {isolation: "REPEATABLE-READ", "sql_mode": "", "time_zone": "+05:30"}
        (before,) = server.execute(f"SELECT {', '.join(f'@@GLOBAL.{name}' for name in wrong)}")
        right = dict(zip(wrong, before, strict=True))
        connection.close()
        for name, value in wrong.items():
            server.execute(f"SET GLOBAL {name} = '{value}'")
        yield
        for name, value in right.items():
            server.execute(f"SET GLOBAL {name} = '{value}'")

    def test_what_others_commit_is_seen_within_a_transaction(self, engine: Engine) -> None:
        """READ COMMITTED; SQLite's one writer sees no others before it ends."""
        with another_session() as other, transaction.atomic():
            list(Item.objects.all())
            if engine.is_server:
                run(other, "INSERT INTO suite_item (id, `key`, name, state, claimed_by) "
                           "VALUES (1, 'a', '', 0, '')")  # fmt: skip
                assert Item.objects.count() == 1
            else:
                run(other, "PRAGMA busy_timeout = 0")
                with pytest.raises(OperationalError, match="locked"):
                    run(other, "DELETE FROM suite_item")

    def test_a_value_that_does_not_fit_is_refused(self, engine: Engine) -> None:
        """SQLite takes any text, and Django's forms and our limits are what bounds it."""
        row = Item(id=1, key="a" * 41)
        if not engine.is_server:
            row.save()
            assert Item.objects.get().key == "a" * 41
            return
        with pytest.raises(Exception, match="Data too long") as caught:
            row.save()
        assert engines.fault(caught.value) is Fault.VALUE
        assert engines.column_of(str(caught.value)) == "key"

    def test_the_clock_is_utc(self, engine: Engine) -> None:
        assert abs(datetime.now(UTC) - sql.now()) < timedelta(seconds=30) + engine.clock_step


def test_a_connection_that_the_server_ends_is_made_anew(engine: Engine) -> None:
    Item.objects.create(id=1, key="a")
    if number := engine.connection_id(connection):
        with another_session() as other:
            run(other, f"KILL {number}")
    else:
        connection.close()  # of a file: nobody else can end it
    rows = transactions.retrying(lambda: list(Item.objects.values_list("id", flat=True)))
    assert rows == [1]


def test_an_idle_connection_that_the_server_closes_is_made_anew(engine: Engine) -> None:
    if engine.is_server:
        run(connection, "SET SESSION wait_timeout = 1")
        number = engine.connection_id(connection)
        with another_session() as other:
            numbers = "SELECT id FROM information_schema.processlist WHERE id = %s"
            until(lambda: not run(other, numbers, [number]))
    assert transactions.retrying(lambda: Item.objects.count()) == 0


def test_statements_of_others_are_counted(engine: Engine) -> None:
    """Of a file they are not: nobody but its writer works on it."""
    if not engine.is_server:
        assert engine.running_statements(connection) == 0
        assert engine.running_connections(connection) == set()
        return
    begun = threading.Event()

    def sleep() -> None:
        begun.set()
        with pytest.raises(OperationalError):
            run(other, "SELECT SLEEP(60), '🌸'")

    with another_session() as other:
        other.ensure_connection()
        other.inc_thread_sharing()
        number = engine.connection_id(other)
        sleeper = threading.Thread(target=sleep)
        sleeper.start()
        begun.wait()
        until(lambda: number in engine.running_connections(connection))
        assert engine.running_statements(connection) >= 1
        run(connection, f"KILL {number}")
        sleeper.join(60)


def test_transactions_that_have_written_are_seen(engine: Engine) -> None:
    """For the horizon of a source. A file has a lock, which tells the same."""
    activity = engine.activity
    if activity is None:
        assert not engine.is_server
        return

    def rows(statement: str, parameters: Any = ()) -> Any:
        return run(connection, statement, parameters)

    def oldest() -> str | None:
        """Of a list of this second, or of the one before where the clock of transactions lags."""
        now = datetime.fromisoformat(activity.now(rows)) - activity.clock_lag
        since = now.replace(tzinfo=UTC, microsecond=0)
        with begun():
            for _ in range(100):
                is_new, moment = activity.oldest_transaction(rows, since)
                if is_new:
                    return moment
                time.sleep(0.15)  # the server renews a list that nobody has read for 0.1 s
        raise AssertionError("the list is not renewed")

    @contextmanager
    def begun() -> Iterator[None]:
        run(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        yield
        run(connection, "COMMIT")

    assert not activity.is_in_cluster(rows)
    assert activity.identity(rows) == activity.identity(rows) != ""
    assert activity.statements(rows)[1:] == (None, False)
    assert oldest() is None
    with another_session() as other:
        other.set_autocommit(False)
        run(other, "SELECT id FROM suite_item")
        assert oldest() is None
        before = activity.now(rows)
        run(other, "INSERT INTO suite_value (id, text, content) VALUES (9, '', '')")
        until(oldest)  # the list of the same second may be older than the transaction
        late = datetime.fromisoformat(str(oldest())) - datetime.fromisoformat(before)
        assert timedelta(seconds=-2) <= late <= timedelta(seconds=30)
        other.rollback()


def test_a_server_of_its_own_is_no_cluster_and_refuses_nothing(engine: Engine) -> None:
    assert engine.cluster(connection) is None
    assert engine.refusal(connection) == ""
    assert list(engine.problems(connection)) == []


@contextmanager
def proxy(path: Path, server_path: str, version: bytes) -> Iterator[None]:
    """A proxy at a socket that greets with this version, and carries one connection."""

    def copy(source: socket.socket, sink: socket.socket) -> None:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_RDWR)

    def carry() -> None:
        client, _ = listener.accept()
        with client, socket.socket(socket.AF_UNIX) as server:
            server.connect(server_path)
            greeting = server.recv(65536)  # length, number, protocol, version, NUL and more
            body = greeting[4:5] + version + greeting[greeting.index(b"\0", 5) :]
            client.sendall(len(body).to_bytes(3, "little") + greeting[3:4] + body)
            back = threading.Thread(target=copy, args=[server, client])
            back.start()
            copy(client, server)
            back.join(60)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=carry, daemon=True)
        thread.start()
        yield
        thread.join(60)


def test_a_proxy_is_named(engine: Engine, tmp_path: Path) -> None:
    """The proxy names its own version, as ProxySQL does; a file has none before it."""
    if not engine.is_server:
        return
    server_path = connection.settings_dict["OPTIONS"]["unix_socket"]
    path = tmp_path / "p"
    with proxy(path, server_path, b"5.5.30"), another_session(unix_socket=str(path)) as other:
        other.ensure_connection()
        (problem,) = engine.problems(other)
    assert "a proxy that calls itself 5.5.30" in problem.text
    assert not problem.is_serious


def test_settings_by_which_messages_are_lost_are_named(engine: Engine) -> None:
    """The suite's own server does not sync each commit. A file of ours is always synced."""
    texts = [problem.text for problem in engine.settings(connection)]
    if engine.is_server:
        assert any("innodb_flush_log_at_trx_commit=2" in text for text in texts)
    else:
        assert texts == []
        assert run(connection, "PRAGMA synchronous") == [(2,)]


def test_a_session_that_only_reads_cannot_write(engine: Engine) -> None:
    config = engine.reading({**connection.settings_dict, "OPTIONS": {
        name: value for name, value in connection.settings_dict["OPTIONS"].items()
        if name == "unix_socket"
    }})  # fmt: skip
    Item.objects.create(id=1, key="a")
    other = connection.copy()
    other.settings_dict = config
    try:
        other.ensure_connection()
        engine.only_read(other)
        assert run(other, "SELECT id FROM suite_item") in ([(1,)], ((1,),))
        with pytest.raises(OperationalError):
            run(other, "DELETE FROM suite_item")
    finally:
        other.close()
    assert Item.objects.count() == 1


def test_no_database_is_made_for_a_wrong_name(engine: Engine) -> None:
    other = connection.copy()
    name = f"{connection.settings_dict['NAME']}_of_nobody"
    other.settings_dict = engine.existing_only({**connection.settings_dict, "NAME": name})
    with pytest.raises(OperationalError) as caught:
        run(other, "SELECT 1 FROM suite_item")
    assert engines.fault(caught.value) in (Fault.NO_DATABASE, Fault.NO_FILE)
    assert transactions.nothing_happened(caught.value)
