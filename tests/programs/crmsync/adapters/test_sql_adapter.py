"""The SQL adapter on a real MariaDB and on SQLite: what ends up in the CRM's table."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import MySQLdb
import pytest

from bench.harness.mariadb import MariaDb
from crmsync.adapters.base import Check, Record, UnknownField
from crmsync.adapters.outcomes import (
    Auth,
    Conflict,
    Invalid,
    Ok,
    Outcome,
    Refused,
    Retry,
    Unknown,
)
from crmsync.adapters.sql.adapter import SqlAdapter
from msgplatform.core.errors import InvalidInput, Unavailable
from tests.support.cutting_proxy import CuttingProxy

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db]

TABLE = (
    "CREATE TABLE customer (code {key} PRIMARY KEY, name VARCHAR(20) NOT NULL, phone VARCHAR(40), "
    "age INTEGER, gone INTEGER NOT NULL DEFAULT 0, revision BIGINT)"
)
SETTINGS = {"table": "customer", "key_column": "code", "version_column": "revision"}


class Crm:
    """A CRM's own database, looked at past the adapter."""

    def __init__(self, url: str, connect: Callable[[], Any]) -> None:
        self.url, self._connect = url, connect

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(self._connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(statement)
            rows = [tuple(row) for row in cursor.fetchall()]
            connection.commit()
            return rows

    def rows(self) -> list[tuple[Any, ...]]:
        return self.run("SELECT code, name, phone, gone, revision FROM customer ORDER BY code")


@pytest.fixture(params=["mariadb", "sqlite"])
def crm(request: pytest.FixtureRequest, tmp_path: Path) -> Crm:
    if request.param == "sqlite":
        return _in_sqlite(tmp_path / "crm.db")
    return _in_mariadb(request.getfixturevalue("mariadb"))


def _in_sqlite(path: Path) -> Crm:
    made = Crm(f"sqlite:///{path}", lambda: sqlite3.connect(path))
    made.run(TABLE.format(key="VARCHAR(40)"))
    return made


def _in_mariadb(server: MariaDb) -> Crm:
    made = Crm(server.create("crm"), lambda: server.connect("crm"))
    made.run(TABLE.format(key="VARCHAR(40)"))
    return made


@pytest.fixture
def open_adapter() -> Iterator[Callable[..., SqlAdapter]]:
    opened: list[SqlAdapter] = []

    def open_one(url: str, **settings: Any) -> SqlAdapter:
        opened.append(SqlAdapter({**SETTINGS, **settings}, {"url": url}))
        return opened[-1]

    yield open_one
    for adapter in opened:
        adapter.close()


Open = Callable[..., SqlAdapter]


def lead(key: str, version: int = 1, deleted: bool = False, **fields: Any) -> Record:
    return Record(key, version, {"name": f"name {key}", **fields}, deleted)


def test_inserts_updates_and_says_which(crm: Crm, open_adapter: Open) -> None:
    adapter = open_adapter(crm.url)
    assert adapter.send([lead("b"), lead("a", phone="138")]) == [Ok("b", True), Ok("a", True)]
    assert adapter.send([lead("a", 2, name="王小明 😀"), lead("c")]) == [
        Ok("a", False),
        Ok("c", True),
    ]
    assert crm.rows() == [
        ("a", "王小明 😀", "138", 0, 2),  # a field that was not sent is left as it is
        ("b", "name b", None, 0, 1),
        ("c", "name c", None, 0, 1),
    ]


def test_none_clears_a_field(crm: Crm, open_adapter: Open) -> None:
    adapter = open_adapter(crm.url)
    adapter.send([lead("a", phone="138")])
    adapter.send([lead("a", 2, phone=None)])
    assert crm.rows() == [("a", "name a", None, 0, 2)]


def test_an_older_version_never_overwrites_a_newer(crm: Crm, open_adapter: Open) -> None:
    adapter = open_adapter(crm.url)
    adapter.send([lead("a", 5, name="new")])
    assert adapter.send([lead("a", 4, name="old", phone="1")]) == [Ok("a", False)]
    assert crm.rows() == [("a", "new", None, 0, 5)]
    adapter.send([lead("a", 5, name="corrected")])  # the same version may be sent again
    assert crm.rows() == [("a", "corrected", None, 0, 5)]


def test_of_two_versions_in_one_call_the_newer_is_written(crm: Crm, open_adapter: Open) -> None:
    outcomes = open_adapter(crm.url).send([lead("a", 2, name="new"), lead("a", 1, name="old")])
    assert outcomes == [Ok("a", True), Ok("a", True)]
    assert crm.rows() == [("a", "new", None, 0, 2)]


def test_a_row_without_a_version_is_taken_over(crm: Crm, open_adapter: Open) -> None:
    crm.run("INSERT INTO customer (code, name) VALUES ('a', 'typed in by hand')")
    assert open_adapter(crm.url).send([lead("a")]) == [Ok("a", False)]
    assert crm.rows() == [("a", "name a", None, 0, 1)]


def test_deletes_by_a_column(crm: Crm, open_adapter: Open) -> None:
    adapter = open_adapter(crm.url, deleted_column="gone")
    adapter.send([lead("a"), lead("b")])
    assert adapter.send([lead("a", 2, deleted=True)]) == [Ok("a", False)]
    adapter.send([lead("a", 1)])  # late: it does not come back to life
    assert crm.rows() == [("a", "name a", None, 1, 2), ("b", "name b", None, 0, 1)]
    adapter.send([lead("a", 3)])
    assert crm.rows()[0] == ("a", "name a", None, 0, 3)


def test_deletes_by_a_column_in_a_table_that_wants_values(crm: Crm, open_adapter: Open) -> None:
    """A deletion comes without any, and a row needs a name."""
    adapter = open_adapter(crm.url, deleted_column="gone")
    adapter.send([lead("a", 5), lead("b", 5), lead("c", 5)])
    outcomes = adapter.send(
        [Record("a", 6, {}, True), Record("b", 4, {}, True), Record("never", 1, {}, True),
         lead("c", 6, name="new")]
    )  # fmt: skip
    assert outcomes == [Ok("a", False), Ok("b", False), Ok("never", False), Ok("c", False)]
    adapter.send([lead("a", 5)])  # late: it does not come back to life
    assert crm.rows() == [
        ("a", "name a", None, 1, 6),
        ("b", "name b", None, 0, 5),
        ("c", "new", None, 0, 6),
    ]


@pytest.mark.parametrize("kind", ["BIT(1)", "CHAR(1)"])
def test_a_column_of_any_type_says_what_is_deleted(
    mariadb: MariaDb, open_adapter: Open, kind: str
) -> None:
    crm = _in_mariadb(mariadb)
    crm.run(f"ALTER TABLE customer ADD COLUMN mark {kind}")
    adapter = open_adapter(crm.url, deleted_column="mark")
    adapter.send([lead("a"), lead("b")])
    adapter.send([Record("b", 2, {}, deleted=True)])
    stored = adapter.read(["a", "b"])
    assert (stored["a"].deleted, stored["b"].deleted) == (False, True)


def test_deletes_rows_when_there_is_no_column(crm: Crm, open_adapter: Open) -> None:
    adapter = open_adapter(crm.url)
    adapter.send([lead("a", 5), lead("b", 5)])
    outcomes = adapter.send([lead("a", 6, deleted=True), lead("b", 4, deleted=True)])
    assert outcomes == [Ok("a", False), Ok("b", False)]
    assert [row[0] for row in crm.rows()] == ["b"]  # version 4 is older than what is held


def test_what_can_be_seen_before_sending_is_invalid_for_one_record_only(
    crm: Crm, open_adapter: Open
) -> None:
    outcomes = open_adapter(crm.url).send(
        [
            lead("a"),
            lead("b", name="x" * 21),
            lead("c", name=None),
            lead("d", email="a@b.c"),
            lead("e", name="\ud800"),
            lead("g", age=2**64),
            lead("f"),
        ]
    )
    assert outcomes == [
        Ok("a", True),
        Invalid("name", "The value for name has 21 characters; 20 are allowed."),
        Invalid("name", "The column name cannot be empty."),
        Invalid("email", "The table customer has no column email."),
        Invalid("name", "The value for name is no valid text."),
        Invalid("age", "The number for age is too large."),
        Ok("f", True),
    ]
    assert [row[0] for row in crm.rows()] == ["a", "f"]


def test_a_refused_batch_stores_nothing_and_the_record_alone_says_why(
    crm: Crm, open_adapter: Open
) -> None:
    adapter = open_adapter(crm.url)
    crm.run("CREATE UNIQUE INDEX one_phone ON customer (phone)")
    crm.run("INSERT INTO customer (code, name, phone) VALUES ('z', 'other', '138')")
    if crm.url.startswith("sqlite"):
        assert all(
            isinstance(o, Refused) for o in adapter.send([lead("a"), lead("b", phone="138")])
        )
        assert [row[0] for row in crm.rows()] == ["z"]
    (outcome,) = adapter.send([lead("b", phone="138")])
    assert isinstance(outcome, Invalid)
    assert outcome.field == "phone"
    assert adapter.send([lead("a")]) == [Ok("a", True)]
    assert [row[:3] for row in crm.rows()] == [("a", "name a", None), ("z", "other", "138")]


def test_a_value_that_the_database_refuses_is_bisected(
    mariadb: MariaDb, open_adapter: Open
) -> None:
    crm = _in_mariadb(mariadb)
    adapter = open_adapter(crm.url)
    records = [lead("a", age=1), lead("b", age="old"), lead("c", age=3)]
    assert all(isinstance(outcome, Refused) for outcome in adapter.send(records))
    assert crm.rows() == []
    (outcome,) = adapter.send(records[1:2])
    assert isinstance(outcome, Invalid)
    assert outcome.field == "age"


def test_a_time_that_has_no_utc_is_refused_by_the_database(
    mariadb: MariaDb, open_adapter: Open
) -> None:
    crm = _in_mariadb(mariadb)
    crm.run("ALTER TABLE customer ADD COLUMN seen TIMESTAMP NULL")
    adapter = open_adapter(crm.url)
    records = [lead("a", seen="0001-01-01T00:00:00+08:00"), lead("b", seen=None)]
    assert all(isinstance(outcome, Refused) for outcome in adapter.send(records))
    (outcome,) = adapter.send(records[:1])
    assert isinstance(outcome, Invalid)
    assert outcome.field == "seen"


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (1644, Invalid), (31001, Retry), (1815, Retry), (1213, Retry), (1047, Retry), (1030, Retry),
    ],
)  # fmt: skip
def test_a_trigger_s_error_is_of_its_record(
    mariadb: MariaDb, open_adapter: Open, number: int, kind: type[Outcome]
) -> None:
    """Whatever its number: the others are stored. A deadlock or a server that refuses every
    statement is nobody's fault."""
    crm = _in_mariadb(mariadb)
    crm.run(
        "CREATE TRIGGER house_rule BEFORE INSERT ON customer FOR EACH ROW IF NEW.code = 'b' THEN "
        f"SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = {number}, MESSAGE_TEXT = 'no'; END IF"
    )
    adapter = open_adapter(crm.url)
    whole = Retry if number in (1213, 1047, 1030) else Refused
    assert {type(outcome) for outcome in adapter.send([lead("a"), lead("b"), lead("c")])} == {whole}
    assert crm.rows() == []
    assert [type(outcome) for outcome in adapter.send([lead("b")])] == [kind]
    assert adapter.send([lead("a"), lead("c")]) == [Ok("a", True), Ok("c", True)]


def test_the_row_of_another_record_is_never_overwritten(
    mariadb: MariaDb, open_adapter: Open
) -> None:
    """ON DUPLICATE KEY UPDATE acts on any unique key, and on what a collation calls equal."""
    crm = _in_mariadb(mariadb)
    crm.run("CREATE UNIQUE INDEX one_phone ON customer (phone)")
    adapter = open_adapter(crm.url)
    adapter.send([lead("a", phone="138"), lead("Key", 1, name="upper")])
    outcomes = adapter.send([lead("b", 9, phone="138"), lead("KEY", 9), lead("c")])
    assert [type(outcome) for outcome in outcomes] == [Invalid, Invalid, Ok]
    assert sorted(row[:2] for row in crm.rows()) == [
        ("Key", "upper"),
        ("a", "name a"),
        ("c", "name c"),
    ]


def test_a_unique_key_that_was_added_since(mariadb: MariaDb, open_adapter: Open) -> None:
    """The next connection sees it."""
    crm = _in_mariadb(mariadb)
    crm.run("ALTER TABLE customer MODIFY code BIGINT")
    adapter = open_adapter(crm.url)
    assert adapter.send([lead("7", phone="138")]) == [Ok("7", True)]
    crm.run("CREATE UNIQUE INDEX one_phone ON customer (phone)")
    adapter.close()  # as at its age
    assert isinstance(adapter.send([lead("42", phone="138")])[0], Invalid)


@pytest.mark.parametrize("kind", ["CHAR(20)", "VARCHAR(2)"])
def test_a_key_whose_blank_the_column_would_lose_is_another_record(
    mariadb: MariaDb, open_adapter: Open, kind: str
) -> None:
    crm = _in_mariadb(mariadb)
    crm.run(f"ALTER TABLE customer MODIFY code {kind}")
    adapter = open_adapter(crm.url)
    assert adapter.send([lead("K1")]) == [Ok("K1", True)]
    (outcome,) = adapter.send([lead("K1 ", 2)])
    assert isinstance(outcome, Invalid)
    assert crm.rows() == [("K1", "name K1", None, 0, 1)]


def test_a_key_that_ends_with_a_blank(crm: Crm, open_adapter: Open) -> None:
    assert open_adapter(crm.url).send([lead("K2 ")]) == [Ok("K2 ", True)]


def test_a_key_that_sqlite_takes_for_the_same_is_another_record(
    tmp_path: Path, open_adapter: Open
) -> None:
    crm = _in_sqlite(tmp_path / "crm.db")
    crm.run(
        "CREATE TABLE person (hive_id VARCHAR(40) COLLATE NOCASE UNIQUE, email VARCHAR(40) UNIQUE, "
        "version BIGINT)"
    )
    adapter = open_adapter(crm.url, table="person", key_column="hive_id", version_column="version")
    assert adapter.send([Record("Key", 1, {"email": "a"})]) == [Ok("Key", True)]
    (outcome,) = adapter.send([Record("KEY", 9, {"email": "b"})])
    assert outcome == Invalid("", "Another row has a key that the table takes for the same.")
    assert crm.run("SELECT hive_id, email, version FROM person") == [("Key", "a", 1)]


def test_a_row_that_exists_and_was_not_changed_is_not_confirmed(
    mariadb: MariaDb, open_adapter: Open
) -> None:
    """The upsert finds another's row by a unique index that comes before that of the key."""
    crm = _in_mariadb(mariadb)
    crm.run(
        "CREATE TABLE person (id INT AUTO_INCREMENT PRIMARY KEY, email VARCHAR(40) UNIQUE, "
        "hive_id VARCHAR(40) UNIQUE, version BIGINT)"
    )
    crm.run("INSERT INTO person (email, hive_id, version) VALUES ('a', 'K', 1), ('b', NULL, NULL)")
    crm.run("INSERT INTO person (email, hive_id) VALUES ('c', 'N')")
    adapter = open_adapter(crm.url, table="person", key_column="hive_id", version_column="version")
    records = [Record(key, 2, {"email": email}) for key, email in (("K", "b"), ("N", "a"))]
    outcomes = adapter.send([*records, Record("L", 2, {"email": "d"})])
    assert [type(outcome) for outcome in outcomes] == [Invalid, Invalid, Ok]
    held = "SELECT email, hive_id, version FROM person ORDER BY email"
    unchanged = [("a", "K", 1), ("b", None, None), ("c", "N", None)]
    assert crm.run(held) == [*unchanged, ("d", "L", 2)]
    assert adapter.send([Record("K", 3, {"email": "e"})]) == [Ok("K", False)]
    assert adapter.send([Record("K", 2, {"email": "e"})]) == [Ok("K", False)]  # a newer one is held


def test_a_column_that_was_added_or_widened_since(crm: Crm, open_adapter: Open) -> None:
    adapter = open_adapter(crm.url)
    long = lead("b", name="x" * 30)
    assert [type(o) for o in adapter.send([lead("a", email="a@b.c"), long])] == [Invalid, Invalid]
    crm.run("ALTER TABLE customer ADD COLUMN email VARCHAR(40)")
    assert adapter.send([lead("a", email="a@b.c")]) == [Ok("a", True)]
    if not crm.url.startswith("sqlite"):  # which cannot alter a column
        crm.run("ALTER TABLE customer MODIFY name VARCHAR(40)")
        assert adapter.send([long, lead("c", name=None)]) == [Ok("b", True), Ok("c", True)]
    assert crm.run("SELECT email FROM customer WHERE code = 'a'") == [("a@b.c",)]


def test_a_column_of_the_settings_that_is_gone_pauses_the_crm(crm: Crm, open_adapter: Open) -> None:
    adapter = open_adapter(crm.url)
    assert adapter.send([lead("a")]) == [Ok("a", True)]
    crm.run("ALTER TABLE customer RENAME COLUMN revision TO edition")
    gone = Auth("The table customer has no column revision.")
    assert adapter.send([lead("a", 2)]) == [gone]  # the database says so
    assert adapter.send([lead("a", 2), lead("b", odd=1)]) == [gone, gone]
    assert open_adapter(crm.url).send([lead("a", 2)]) == [gone]
    crm.run("ALTER TABLE customer RENAME COLUMN edition TO revision")
    assert adapter.send([lead("a", 2)]) == [Ok("a", False)]


def test_a_version_column_that_is_too_small_pauses_the_crm(
    mariadb: MariaDb, open_adapter: Open
) -> None:
    crm = _in_mariadb(mariadb)
    crm.run("CREATE TABLE small (code VARCHAR(40) PRIMARY KEY, name TEXT, revision SMALLINT)")
    adapter = open_adapter(crm.url, table="small")
    assert adapter.send([lead("a")]) == [Ok("a", True)]
    refused = Auth("The column revision is too small for versions.")
    assert adapter.send([lead("a", 1_795_392_000)]) == [refused]
    assert adapter.send([lead("a", 1_795_392_000), lead("b")]) == [refused, refused]


def test_keys_of_a_number_column(crm: Crm, open_adapter: Open) -> None:
    crm.run("CREATE TABLE numbered (id BIGINT PRIMARY KEY, name VARCHAR(20), version BIGINT)")
    adapter = open_adapter(crm.url, table="numbered", key_column="id", version_column="version")
    assert adapter.send([lead("12"), lead("12x")]) == [
        Ok("12", True),
        Invalid("", "The key '12x' is no number as the column id writes it."),
    ]
    assert adapter.read(["12", "13", "x"])["12"].fields == {"name": "name 12"}
    assert crm.run("SELECT id FROM numbered") == [(12,)]


def test_reads_back_and_looks_up(crm: Crm, open_adapter: Open) -> None:
    adapter = open_adapter(crm.url, deleted_column="gone")
    adapter.send([lead("a", 2, phone="138"), lead("b", 1, deleted=True)])
    stored = adapter.read(["a", "b", "nobody"])
    assert set(stored) == {"a", "b"}
    assert stored["a"].fields == {"name": "name a", "phone": "138", "age": None}
    assert (stored["a"].version, stored["b"].deleted) == (2, True)
    outcomes = adapter.look_up([lead("a", 2), lead("a", 3), lead("nobody"), lead("b", 1, True)])
    assert outcomes == [
        Ok("a", False),
        Conflict("a"),
        Retry(0.0, "The CRM does not hold the record."),
        Ok("b", False),
    ]


def test_fields_and_a_mapping_to_a_field_that_does_not_exist(crm: Crm, open_adapter: Open) -> None:
    adapter = open_adapter(crm.url)
    fields = adapter.fields()
    assert set(fields) == {"name", "phone", "age", "gone"}
    assert (fields["name"].required, fields["name"].max_length) == (True, 20)
    with pytest.raises(UnknownField, match=r"has no field phon\. Did you mean phone\?") as error:
        adapter.check_mapping(["name", "phon"])
    assert error.value.field == "phon"
    assert adapter.check(["name"]).kind == "ok"


def test_the_test_button_says_what_is_wrong(crm: Crm, open_adapter: Open) -> None:
    def said(url: str = crm.url, **settings: Any) -> Check:
        return open_adapter(url, **settings).check()

    assert said(table="nowhere").kind == "settings"
    assert said(key_column="ident") == Check("settings", "The table customer has no column ident.")
    assert said(key_column="name") == Check(
        "settings", "The column name of the table customer needs a unique key."
    )
    assert open_adapter(crm.url).check(["mail"]).kind == "field"
    assert said("sqlite:////nowhere/crm.db").kind == "unreachable"
    assert said("mysql://me:pass-word@127.0.0.1:1/crm").kind == "unreachable"


def test_wrong_credentials_pause_the_crm_and_are_not_repeated(
    mariadb: MariaDb, open_adapter: Open
) -> None:
    socket = quote(str(mariadb.socket))
    adapter = open_adapter(f"mysql://nobody:hush-hush@localhost/crm?unix_socket={socket}")
    (outcome, _) = outcomes = adapter.send([lead("a"), lead("b")])
    assert isinstance(outcome, Auth)
    assert "hush" not in repr([adapter, adapter.credentials, outcomes, adapter.check()])
    assert adapter.check().kind == "credentials"


def test_a_database_that_is_away_costs_a_retry_and_comes_back(
    mariadb: MariaDb, open_adapter: Open
) -> None:
    crm = _in_mariadb(mariadb)
    adapter = open_adapter(crm.url)
    adapter.send([lead("a")])
    for (number,) in mariadb.execute(
        "SELECT id FROM information_schema.processlist WHERE db='crm'"
    ):
        with suppress(MySQLdb.OperationalError):  # one of the test's own, which has ended by now
            mariadb.execute(f"KILL {number}")
    outcomes = adapter.send([lead("a", 2)])
    if isinstance(outcomes[0], Retry):  # the lost connection was not noticed before
        outcomes = adapter.send([lead("a", 2)])
    assert outcomes == [Ok("a", False)]
    nowhere = open_adapter("mysql://root@127.0.0.1:1/crm")
    assert isinstance(nowhere.send([lead("a")])[0], Retry)
    assert isinstance(nowhere.look_up([lead("a")])[0], Unknown)
    with pytest.raises(Unavailable):
        nowhere.read(["a"])


@pytest.mark.parametrize("arrives", [True, False])
def test_a_connection_lost_during_commit_leaves_it_unknown(
    mariadb: MariaDb, open_adapter: Open, tmp_path: Path, arrives: bool
) -> None:
    crm = _in_mariadb(mariadb)
    with CuttingProxy(tmp_path / "p.sock", mariadb.socket, b"\x03COMMIT", arrives) as proxy:
        url = f"mysql://root@localhost/crm?unix_socket={quote(str(proxy.path))}"
        adapter = open_adapter(url)
        outcomes = adapter.send([lead("a"), lead("b")])
        assert [type(outcome) for outcome in outcomes] == [Unknown, Unknown]
        assert proxy.cut.is_set()
    looked_up = open_adapter(crm.url).look_up([lead("a"), lead("b")])
    assert {type(outcome) for outcome in looked_up} == {Ok if arrives else Retry}


def test_a_lock_held_by_another_program_costs_a_retry(mariadb: MariaDb, open_adapter: Open) -> None:
    crm = _in_mariadb(mariadb)
    adapter = open_adapter(crm.url)
    adapter.send([lead("a")])
    with closing(mariadb.connect("crm")) as other:
        other.autocommit(False)
        other.cursor().execute("UPDATE customer SET phone = '1' WHERE code = 'a'")
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.extend(adapter.send([lead("a", 2)])))
        thread.start()
        thread.join(300)
        assert not thread.is_alive()
        assert isinstance(found[0], Retry)
        other.rollback()
    assert adapter.send([lead("a", 2)]) == [Ok("a", False)]


@pytest.mark.parametrize("name", ["a`; DROP TABLE x", "x.y", "", "a%s", "q" * 65])
def test_names_that_could_be_something_else_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput) as error:
        SqlAdapter({**SETTINGS, "table": name}, {"url": "sqlite:///x.db"})
    assert error.value.field == "table"


def test_many_records_go_in_batches(crm: Crm, open_adapter: Open) -> None:
    adapter = open_adapter(crm.url, batch_size=300)
    records = [lead(f"k{number:04}") for number in range(1000)]
    assert adapter.send(records) == [Ok(record.key, True) for record in records]
    assert crm.run("SELECT COUNT(*) FROM customer") == [(1000,)]


def test_a_file_whose_name_is_special_in_urls(tmp_path: Path, open_adapter: Open) -> None:
    path = tmp_path / "crm #1? 50%41.db"
    made = Crm(f"sqlite:///{quote(str(path))}", lambda: sqlite3.connect(path))
    made.run(TABLE.format(key="VARCHAR(40)"))
    assert open_adapter(made.url).send([lead("a")]) == [Ok("a", True)]
    assert made.rows() == [("a", "name a", None, 0, 1)]


@pytest.mark.parametrize("deleted_column", ["", "gone"])
@pytest.mark.parametrize("charset", ["utf8mb4", "latin1", "gbk"])
def test_a_deletion_leaves_a_row_whose_key_the_collation_takes_for_the_same(
    mariadb: MariaDb, open_adapter: Callable[..., SqlAdapter], charset: str, deleted_column: str
) -> None:
    crm = Crm(mariadb.create("crm"), lambda: mariadb.connect("crm"))
    crm.run(TABLE.format(key=f"VARCHAR(40) CHARACTER SET {charset}"))
    adapter = open_adapter(crm.url, deleted_column=deleted_column)
    adapter.send([Record("aB12", 1, {"name": "somebody else"}), Record("x", 1, {"name": "x"})])
    gone = [Record(key, 2, {}, True) for key in ("Ab12", "X", "x")]
    assert all(isinstance(outcome, Ok) for outcome in adapter.send(gone))
    rows = {row[0]: row[3:] for row in crm.rows()}
    assert rows.pop("aB12") == (0, 1)
    assert rows == ({"x": (1, 2)} if deleted_column else {})


def test_a_deletion_in_sqlite_leaves_a_row_that_nocase_takes_for_the_same(
    tmp_path: Path, open_adapter: Callable[..., SqlAdapter]
) -> None:
    path = tmp_path / "crm.db"
    crm = Crm(f"sqlite:///{path}", lambda: sqlite3.connect(path))
    crm.run(TABLE.format(key="TEXT COLLATE NOCASE"))
    adapter = open_adapter(crm.url)
    adapter.send([Record("aB", 1, {"name": "n"}), Record("c", 1, {"name": "n"})])
    adapter.send([Record("Ab", 2, {}, True), Record("c", 2, {}, True)])
    assert [row[0] for row in crm.rows()] == ["aB"]


def test_an_upsert_in_sqlite_leaves_a_row_that_nocase_takes_for_the_same(
    tmp_path: Path, open_adapter: Callable[..., SqlAdapter]
) -> None:
    path = tmp_path / "crm.db"
    crm = Crm(f"sqlite:///{path}", lambda: sqlite3.connect(path))
    crm.run(TABLE.format(key="TEXT COLLATE NOCASE"))
    adapter = open_adapter(crm.url)
    adapter.send([Record("aB", 1, {"name": "somebody else"})])
    assert adapter.send([Record("Ab", 2, {"name": "n"}), Record("c", 2, {"name": "n"})]) == [
        Invalid("", "Another row has a key that the table takes for the same."),
        Ok("c", True),
    ]
    assert [row[:2] for row in crm.rows()] == [("aB", "somebody else"), ("c", "n")]


def test_a_number_has_one_key(mariadb: MariaDb, open_adapter: Callable[..., SqlAdapter]) -> None:
    crm = Crm(mariadb.create("crm"), lambda: mariadb.connect("crm"))
    crm.run(TABLE.format(key="BIGINT"))
    adapter = open_adapter(crm.url)
    seven, other, minus = adapter.send(
        [Record(key, 1, {"name": key}) for key in ("7", "007", "-3")]
    )
    assert (seven, minus) == (Ok("7", True), Ok("-3", True))
    assert other == Invalid("", "The key '007' is no number as the column code writes it.")
    (unreadable, eight) = adapter.send([Record(key, 1, {"name": key}) for key in ("--5", "8")])
    assert (type(unreadable), eight) == (Invalid, Ok("8", True))
    (refused,) = adapter.send([Record("007", 2, {}, True)])
    assert isinstance(refused, Invalid)
    assert {row[:2] for row in crm.rows()} == {(7, "7"), (-3, "-3"), (8, "8")}
    assert adapter.read(["007"]) == {}
