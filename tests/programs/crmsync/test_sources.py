"""What is wrong with a source has a clear error, permanent or temporary, without the password."""

import sqlite3
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError
from django.db.utils import ConnectionHandler
from msgspec import structs

from bench.harness.mariadb import MariaDb
from crmsync.poller.changes import sweep
from crmsync.poller.reading.database import Database, inspect
from crmsync.poller.reading.increment import Increment, Watermark
from crmsync.poller.reading.source import Source, SourceMismatch, SourceRefused, SourceUnavailable
from msgplatform.core.data import databases, engines
from msgplatform.core.errors import InvalidInput, Permanent, PlatformError
from msgplatform.core.servers.private_server import free_port
from tests.support.lead_tables import INSERT, LEADS, SQLITE_TABLE
from tests.support.sources import NAME, PASSWORD, Follower, reader_url, run_as_owner

MakeSource = Callable[..., Source]
REFUSED_FILE = "(?i)local (infile|data)"  # MariaDB's and MySQL's words


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        ({"table": "leads"}, SourceMismatch, "the table leads does not exist"),
        ({"columns": structs.replace(LEADS, values=("mail",))}, SourceMismatch, "no column mail"),
        (
            {"columns": structs.replace(LEADS, update_time="uid", values=())},
            SourceMismatch,
            "a date with",
        ),
        (
            {"columns": structs.replace(LEADS, version="uid", values=())},
            SourceMismatch,
            "an integer",
        ),
        ({"columns": structs.replace(LEADS, key="uid", values=())}, SourceMismatch, "not unique"),
        (
            {"columns": structs.replace(LEADS, key="other", values=())},
            SourceMismatch,
            "not allow NULL",
        ),
    ],
)
def test_a_description_that_is_wrong(
    change: dict[str, Any],
    kind: type[PlatformError],
    text: str,
    foreign: MakeSource,
    mariadb: MariaDb,
) -> None:
    source = foreign()
    run_as_owner(mariadb, "ALTER TABLE `lead` ADD COLUMN other INT UNIQUE")
    with pytest.raises(kind, match=text) as caught:
        Increment(replace(source, **change))
    assert isinstance(caught.value, Permanent)


@pytest.mark.parametrize(
    ("old", "new", "kind", "permanent"),
    [
        (PASSWORD, "wrong", SourceRefused, True),
        (NAME, "no_such_database", SourceRefused, True),  # without a privilege there it says so
        (NAME, "mysql", SourceRefused, True),
        ("127.0.0.1", "no-such-host.invalid", SourceUnavailable, False),
    ],
)
def test_a_server_that_says_no(
    old: str, new: str, kind: type[PlatformError], permanent: bool, foreign: MakeSource
) -> None:
    source = foreign()
    with pytest.raises(kind) as caught:
        Increment(replace(source, database=source.database.replace(old, new)))
    assert isinstance(caught.value, Permanent) is permanent
    assert PASSWORD not in str(caught.value) + repr(source)


def test_a_server_that_is_not_there(mariadb: MariaDb) -> None:
    url = reader_url(mariadb).replace(str(mariadb.port), str(free_port()))
    with pytest.raises(SourceUnavailable) as caught:
        Increment(Source("lead", LEADS, url))
    assert not isinstance(caught.value, Permanent)


def test_a_connection_that_is_cut_is_made_anew(foreign: MakeSource, mariadb: MariaDb) -> None:
    increment = Increment(source := foreign())
    ((number,),) = Database(source).rows("SELECT CONNECTION_ID()")
    mariadb.execute(f"KILL {number}")
    with pytest.raises(SourceUnavailable):
        increment.read(None, 10)
    assert increment.read(None, 10).rows == []


def test_a_column_that_may_not_be_read(foreign: MakeSource, mariadb: MariaDb) -> None:
    source = foreign()
    mariadb.execute(f"REVOKE SELECT ON {NAME}.* FROM reader@'%'")
    with pytest.raises(SourceRefused):
        Increment(source)
    mariadb.execute(f"GRANT SELECT (id, UpdateTime) ON {NAME}.lead TO reader@'%'")
    with pytest.raises(SourceMismatch, match="no column IsDelete, or it may not be read"):
        Increment(source)
    few = structs.replace(LEADS, is_deleted="", version="", values=())
    assert Increment(replace(source, columns=few)).read(None, 1).rows == []


def test_the_session_only_reads(foreign: MakeSource, mariadb: MariaDb, tmp_path: Path) -> None:
    source = foreign()
    mariadb.execute(f"GRANT ALL ON {NAME}.* TO reader@'%'")
    with pytest.raises(SourceUnavailable, match="READ ONLY"):
        Database(source).rows(INSERT.format(uid="a"))
    file = sqlite_file(tmp_path)
    with pytest.raises(SourceUnavailable, match="readonly"):
        Database(Source("lead", LEADS, f"sqlite:///{file}")).rows("DELETE FROM `lead`")
    increment = Increment(Source("lead", LEADS, f"sqlite:///{file}"))
    increment.read(None, 1)  # which held the lock for a moment
    with pytest.raises(SourceUnavailable, match="readonly"):
        Database(Source("lead", LEADS, f"sqlite:///{file}")).rows("DELETE FROM `lead`")


def test_an_index_that_is_ignored_is_none(foreign: MakeSource, mariadb: MariaDb) -> None:
    """As before its DROP. Naming it in a hint is an error."""
    source = foreign()
    assert inspect(source, Database(source)).index == "UpdateTime"
    hide = "ALTER INDEX UpdateTime /*!80000 INVISIBLE */ /*M!100600 IGNORED */"
    run_as_owner(mariadb, INSERT.format(uid="a"), f"ALTER TABLE `lead` {hide}")
    assert inspect(source, Database(source)).index == ""
    assert Follower(source).until("a") == ["a"]


def test_rows_without_a_time(foreign: MakeSource, mariadb: MariaDb) -> None:
    source = foreign("DATETIME(6)")
    run_as_owner(
        mariadb,
        "ALTER TABLE `lead` MODIFY UpdateTime DATETIME(6) NULL",
        INSERT.format(uid="a"),
        "UPDATE `lead` SET UpdateTime = NULL",
    )
    run_as_owner(mariadb, INSERT.format(uid="b"), "UPDATE `lead` SET UpdateTime = UTC_TIMESTAMP()")
    run_as_owner(mariadb, "UPDATE `lead` SET UpdateTime = NULL WHERE uid = 'a'")
    follower = Follower(source)
    assert follower.until("b") == ["b"]  # the others are read, and it is told
    assert follower.page
    assert follower.page.facts.without_time == 1


@pytest.mark.parametrize(("hours", "is_anew"), [(0, False), (9, True)])
@pytest.mark.parametrize(
    ("before", "after", "zone"),
    [
        ("DATETIME(6)", "TIMESTAMP(6)", "+08:00"),
        ("TIMESTAMP(6)", "DATETIME(6)", "+08:00"),
        ("TIMESTAMP(6)", "DATETIME(6)", "-08:00"),
    ],
)
def test_a_column_whose_type_is_changed_loses_no_row(
    foreign: MakeSource, mariadb: MariaDb, before: str, after: str, zone: str, hours: int,
    is_anew: bool,
) -> None:  # fmt: skip
    """The session reads a TIMESTAMP in UTC: eight hours from the DATETIME. The last rows were
    written some minutes before the look, or hours after the last row that was read."""
    follower = Follower(source := foreign(before, zone=zone))
    in_zone = f"SET time_zone = '{zone}'"
    aged = "UPDATE `lead` SET UpdateTime = NOW(6) - INTERVAL {} MINUTE WHERE uid = '{}'"
    age = aged.format(30 + 60 * hours, "a")
    run_as_owner(mariadb, in_zone, INSERT.format(uid="a"), age)
    assert follower.until("a")[-1] == "a"
    modify = f"ALTER TABLE `lead` MODIFY UpdateTime {after} DEFAULT CURRENT_TIMESTAMP(6)"
    young = [INSERT.format(uid="b"), aged.format(20 + 60 * hours, "b"), INSERT.format(uid="c")]
    run_as_owner(mariadb, in_zone, modify, *young)
    if is_anew:  # the source failed meanwhile
        follower.increment = Increment(source, follower.increment.zone)
    follower.increment.next_look.at_once()
    watermark = follower.watermark
    page = follower.increment.read(watermark, 100)
    assert watermark
    assert page.facts.clock_back  # the poller reads again from there
    follower.watermark = follower.increment.before(watermark, page.facts.clock_back)
    follower.increment.forget_step_back()
    assert {"b", "c"} <= set(follower.until("b", "c"))
    assert follower.page
    assert not follower.page.facts.clock_back


def test_a_privilege_that_is_granted_counts_from_the_next_connection(
    foreign: MakeSource, mariadb: MariaDb
) -> None:
    increment = Increment(source := foreign(process=False))
    while not increment.read(None, 1).facts.bounded_by:
        time.sleep(0.05)  # another source has asked this server just now
    mariadb.execute("GRANT PROCESS ON *.* TO reader@'%'")
    Database(source).connection.close()  # as after a minute
    increment.next_look.at_once()
    assert increment.read(None, 1).facts.exact


def sqlite_file(folder: Path) -> Path:
    file = folder / "leads.db"
    made = sqlite3.connect(file)
    made.execute("PRAGMA journal_mode = WAL")
    made.executescript(SQLITE_TABLE)
    made.execute(INSERT.format(uid="a"))
    made.commit()
    made.close()
    return file


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    missing, other = tmp_path / "missing.db", tmp_path / "other.db"
    other.write_text("not a database, but long enough to be looked at " * 50)
    with pytest.raises(SourceMismatch, match="no such file"):
        Increment(Source("lead", LEADS, f"sqlite:///{missing}"))
    assert not missing.exists()
    with pytest.raises(SourceMismatch, match="cannot be read"):
        Increment(Source("lead", LEADS, f"sqlite:///{other}"))


def test_sqlite_times_in_another_spelling(tmp_path: Path) -> None:
    file = sqlite_file(tmp_path)
    with sqlite3.connect(file) as owner:
        owner.execute("UPDATE `lead` SET UpdateTime = '2026-01-01T00:00:00Z'")
    with pytest.raises(SourceMismatch, match="written as"):
        Increment(Source("lead", LEADS, f"sqlite:///{file}"))


def test_sqlite_times_that_are_numbers(tmp_path: Path) -> None:
    """As Prisma writes them."""
    file = sqlite_file(tmp_path)
    with sqlite3.connect(file) as owner:
        owner.execute("UPDATE `lead` SET UpdateTime = 1767225600000")
    with pytest.raises(SourceMismatch, match="are numbers, such as 1767225600000; they must be"):
        Increment(Source("lead", LEADS, f"sqlite:///{file}"))


def test_a_text_in_sqlite_that_is_not_utf_8_is_of_its_row_alone(tmp_path: Path) -> None:
    """And no error shows the text."""
    file = sqlite_file(tmp_path)
    with sqlite3.connect(file) as owner:
        owner.execute(INSERT.format(uid="b"))
        owner.execute(INSERT.format(uid="c"))
        owner.execute("UPDATE `lead` SET UpdateTime = '2026-01-01 00:00:00.000'")
        owner.execute("UPDATE `lead` SET name = CAST(x'736563726574FF' AS TEXT) WHERE uid = 'b'")
    source = Source("lead", LEADS, f"sqlite:///{file}")
    rows = Increment(source).read(None, 10).rows
    assert [(row.values.get("uid"), row.problem) for row in rows] == [
        ("a", ""),
        (None, "A value of the row cannot be read: UnicodeError."),
        ("c", ""),
    ]
    with pytest.raises(UnicodeError) as caught:
        Database(source).rows("SELECT name FROM `lead`")
    assert "secret" not in "".join(traceback.format_exception(caught.value))
    assert str(caught.value) == "Could not decode to UTF-8 column 'name'"


@pytest.mark.parametrize(
    ("key", "time", "deleted", "version"),
    [
        ("INT8", "DATETIME2", "BOOLEAN", "UNSIGNED BIG INT"),
        ("NVARCHAR(40)", "VARCHAR(30)", "NUMERIC", "INT2"),
        ("CHARACTER(20)", "TIMESTAMP", "TINYINT(1)", "BIGINT"),
        ("CLOB", "DATETIME(6)", "BOOL", "NUMERIC"),
        ("NATIVE CHARACTER(70)", "TEXT", "DECIMAL(1,0)", "MEDIUMINT"),
        ("UNIQUEIDENTIFIER", "timestamp without time zone", "boolean", "integer"),
    ],
)
def test_sqlite_types_as_frameworks_declare_them(
    tmp_path: Path, key: str, time: str, deleted: str, version: str
) -> None:
    file = tmp_path / "shop.db"
    with sqlite3.connect(file) as owner:
        owner.execute(
            f"CREATE TABLE `lead` (id {key} NOT NULL PRIMARY KEY, UpdateTime {time} NOT NULL, "
            f"IsDelete {deleted} NOT NULL, version {version} NOT NULL, uid CLOB)"
        )
        owner.execute("INSERT INTO `lead` VALUES ('1', '2026-01-01 00:00:00.000', 1, 3, 'a')")
    columns = structs.replace(LEADS, values=("uid",))
    (row,) = Increment(Source("lead", columns, f"sqlite:///{file}")).read(None, 10).rows
    assert (str(row.key), row.deleted, row.version, row.values) == ("1", True, 3, {"uid": "a"})


@pytest.mark.parametrize(
    ("column", "kind"), [("UpdateTime", "DATE"), ("IsDelete", "VARCHAR(5)"), ("version", "BLOB")]
)
def test_sqlite_types_that_cannot_be_used(tmp_path: Path, column: str, kind: str) -> None:
    file = tmp_path / "shop.db"
    kinds = {"UpdateTime": "TEXT", "IsDelete": "INT", "version": "INT", column: kind}
    declared = ", ".join(f"{name} {each} NOT NULL" for name, each in kinds.items())
    with sqlite3.connect(file) as owner:
        owner.execute(f"CREATE TABLE `lead` (id INTEGER PRIMARY KEY, {declared}, uid TEXT)")
    with pytest.raises(SourceMismatch, match=f"the column {column} has the type"):
        Increment(Source("lead", structs.replace(LEADS, values=("uid",)), f"sqlite:///{file}"))


def test_sqlite_while_somebody_writes(tmp_path: Path) -> None:
    """The rows of the newest time wait: the open transaction may have others of that time."""
    file = sqlite_file(tmp_path)
    writer = sqlite3.connect(file, isolation_level=None)
    writer.execute("UPDATE `lead` SET UpdateTime = '2026-01-01 00:00:00.500'")
    writer.execute(
        INSERT.replace("phone,", "phone, UpdateTime,")
        .format(uid="b")
        .replace("'13',", "'13', '2026-01-01 00:00:00.500',")
    )
    writer.execute("BEGIN IMMEDIATE")
    writer.execute(
        "UPDATE `lead` SET UpdateTime = '2026-01-01 00:00:00.500', version = 2 WHERE uid = 'a'"
    )
    increment = Increment(Source("lead", LEADS, f"sqlite:///{file}"))
    page = increment.read(None, 10)
    assert page.rows == []
    assert page.facts.waiting == 2
    assert page.facts.exact
    writer.execute("COMMIT")
    later = Increment(Source("lead", LEADS, f"sqlite:///{file}")).read(page.watermark, 10)
    assert [(row.values["uid"], row.version) for row in later.rows] == [("a", 2), ("b", 1)]
    assert later.watermark == Watermark("2026-01-01 00:00:00.500", 2)
    writer.close()


def test_sweep_finds_what_is_behind(foreign: MakeSource, mariadb: MariaDb) -> None:
    source = foreign()
    run_as_owner(mariadb, *(INSERT.format(uid=f"u{n}") for n in range(5)))
    run_as_owner(mariadb, "UPDATE `lead` SET version = 3 WHERE id IN (2, 4)")
    versions = {1: 1, 2: 2, 4: 3, 5: 9}  # 2 is behind, 3 was never sent
    behind: list[Any] = []
    compared: list[Any] = []
    after = None

    def sent(keys: Sequence[Any]) -> dict[Any, int]:
        compared.extend(keys)
        return {key: versions[key] for key in keys if key in versions}

    while True:
        page = sweep(source, sent, after, 2)
        behind += page.keys_behind
        after = page.after
        if after is None:
            break
    assert behind == [2, 3]
    assert compared == [1, 2, 3, 4, 5]
    with pytest.raises(SourceMismatch, match="no version"):
        sweep(replace(source, columns=structs.replace(LEADS, version="")), lambda keys: {})


def test_rows_of_sessions_in_other_zones_are_found_by_the_comparison(
    foreign: MakeSource, mariadb: MariaDb
) -> None:
    """A DATETIME has the clock of its session: one is behind all others, one far ahead."""
    source = foreign(kind="DATETIME(6)", zone="+08:00")  # as the server
    follower = Follower(source)
    run_as_owner(mariadb, INSERT.format(uid="here"))
    follower.until("here")
    for zone, uid in (("-11:00", "west"), ("+13:00", "east")):
        run_as_owner(mariadb, f"SET time_zone = '{zone}'", INSERT.format(uid=uid))
    run_as_owner(mariadb, INSERT.format(uid="later"))
    assert follower.until("later") == ["later"]
    assert follower.page
    assert follower.page.facts.waiting == 1, "the one ahead is shown as waiting"
    page = sweep(source, lambda keys: {key: 1 for key in keys if key in (1, 4)})
    assert page.keys_behind == [2, 3]
    rows = follower.increment.rows(page.keys_behind)
    assert [row.values["uid"] for row in rows] == ["west", "east"]


def test_a_sweep_goes_on_after_a_version_that_is_no_number(tmp_path: Path) -> None:
    file = sqlite_file(tmp_path)
    with sqlite3.connect(file) as made:
        made.execute("UPDATE `lead` SET version = 'seven' WHERE id = 1")
        made.execute(INSERT.format(uid="b"))
    page = sweep(Source("lead", LEADS, f"sqlite:///{file}"), lambda keys: {1: 5, 2: 0})
    assert page.keys_behind == [2]


def test_a_sweep_compares_versions_in_a_column_of_bits(
    foreign: MakeSource, mariadb: MariaDb
) -> None:
    source = foreign()
    run_as_owner(mariadb, *(INSERT.format(uid=f"u{n}") for n in range(2)))
    run_as_owner(mariadb, "ALTER TABLE `lead` MODIFY version BIT(32) NOT NULL DEFAULT 1")
    run_as_owner(mariadb, "UPDATE `lead` SET version = 3 WHERE id = 2")
    assert sweep(source, lambda keys: dict.fromkeys(keys, 2)).keys_behind == [2]


@pytest.mark.parametrize(
    "url", ["postgres://a/b", "mysql://u:geheim@h", "mysql://u:geheim@h/d?init_command=SELECT+1"]
)
def test_urls_that_cannot_be_used(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Increment(Source("lead", LEADS, url))
    assert "geheim" not in str(caught.value)


def test_no_server_gets_a_file_of_this_machine(
    foreign: MakeSource, mariadb: MariaDb, tmp_path: Path
) -> None:
    """LOAD DATA LOCAL, which a hostile server may also ask for by itself: for a source, a CRM's
    database, and the platform's own options."""
    source = foreign()
    mariadb.execute("SET GLOBAL local_infile = 1")  # MySQL's default refuses it, too
    (secret := tmp_path / "secret").write_text("1\n")
    run_as_owner(mariadb, "CREATE TABLE stolen (line VARCHAR(200))")
    load = f"LOAD DATA LOCAL INFILE '{secret}' INTO TABLE stolen"
    handler = ConnectionHandler({"default": databases.for_writing(mariadb.url(NAME))})
    try:
        cursor = handler["default"].cursor()
        with pytest.raises(DatabaseError, match=REFUSED_FILE):
            cursor.execute(load)
    finally:
        handler.close_all()
    with pytest.raises(PlatformError, match=REFUSED_FILE):
        Database(source).rows(load)
    assert engines.MYSQL.options["local_infile"] == 0
