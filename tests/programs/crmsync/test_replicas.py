"""A source that is a replica, with a real one: its transactions are open on another server."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from bench.harness.mariadb import MariaDb
from crmsync.admin.setup.sources import examine
from crmsync.poller.reading.source import Source
from tests.servers import DATABASE, DatabaseServer
from tests.support.lead_tables import INSERT, LEADS, MYSQL_TABLE
from tests.support.sources import NAME, PASSWORD, SECONDS, Follower, run_as_owner

ADDRESS = (
    "{0}_HOST='127.0.0.1', {0}_PORT={1}, {0}_USER='repl', {0}_PASSWORD='repl', "
    "{0}_LOG_FILE='bin1.000001', {0}_LOG_POS=4"
)
FOLLOW, SOURCE, REPLICA = "CHANGE MASTER TO ", "MASTER", "SLAVE"
if DATABASE == "mysql":  # which also asks how the password may be sent
    FOLLOW, SOURCE, REPLICA = "CHANGE REPLICATION SOURCE TO ", "SOURCE", "REPLICA"
    FOLLOW += "GET_SOURCE_PUBLIC_KEY=1, "


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[MariaDb, MariaDb]]:
    """A primary, and its replica with the usual settings."""
    folder = Path(tempfile.mkdtemp(prefix="mp-pair-"))  # a socket's path must be short
    primary, replica = (
        DatabaseServer(folder / f"m{number}", {"server_id": number, "log_bin": f"bin{number}"})
        for number in (1, 2)
    )
    try:
        primary.start()
        replica.start()
        primary.execute("CREATE USER repl@'%' IDENTIFIED BY 'repl'")
        primary.execute("GRANT REPLICATION SLAVE ON *.* TO repl@'%'")
        primary.create(NAME)
        primary.execute(MYSQL_TABLE.format(table=f"{NAME}.lead", kind="TIMESTAMP(6)"))
        primary.execute(f"CREATE USER reader@'%' IDENTIFIED BY '{PASSWORD}'")
        primary.execute(f"GRANT SELECT ON {NAME}.* TO reader@'%'")
        primary.execute("GRANT PROCESS ON *.* TO reader@'%'")
        replica.execute(FOLLOW + ADDRESS.format(SOURCE, primary.port))
        replica.execute(f"START {REPLICA}")
        yield primary, replica
    finally:
        replica.stop()
        primary.stop()
        shutil.rmtree(folder, ignore_errors=True)


def source_on(server: MariaDb) -> Source:
    url = f"mysql://reader:{PASSWORD}@127.0.0.1:{server.port}/{NAME}"
    # Longer than a transaction is held open here, however slow the machine is.
    return Source("lead", LEADS, url, lag=timedelta(minutes=10))


def until_replicated(replica: MariaDb, uid: str) -> None:
    deadline = time.monotonic() + SECONDS
    statement = f"SELECT 1 FROM {NAME}.lead WHERE uid = '{uid}'"
    while True:
        try:
            if replica.execute(statement):
                return
        except Exception as error:  # the database itself has not come yet
            last = error
        else:
            last = AssertionError(uid)
        if time.monotonic() > deadline:
            raise last
        time.sleep(0.1)


def test_what_was_slow_on_the_primary_is_read_from_the_replica(
    pair: tuple[MariaDb, MariaDb],
) -> None:
    primary, replica = pair
    run_as_owner(primary, INSERT.format(uid="first"))
    until_replicated(replica, "first")
    assert replica.execute("SELECT @@GLOBAL.read_only") == ((0,),)
    follower = Follower(source_on(replica))
    with closing(primary.connect(NAME)) as late:
        cursor = late.cursor()
        cursor.execute("BEGIN")
        cursor.execute(INSERT.format(uid="slow"))
        time.sleep(1)
        run_as_owner(primary, INSERT.format(uid="quick"))
        until_replicated(replica, "quick")
        read = follower.until("first", "quick")  # which is read early
        time.sleep(3)
        cursor.execute("COMMIT")
    until_replicated(replica, "slow")
    assert sorted(read + follower.until("slow")) == ["first", "quick", "slow"]
    assert follower.page
    assert follower.page.facts.bounded_by == "replica"
    # Its threads may be stopped for a while.
    replica.execute(f"STOP {REPLICA}")
    follower.increment._read_at = 0.0
    follower.read()
    assert follower.page.facts.bounded_by == "replica"
    replica.execute(f"START {REPLICA}")


def test_the_test_of_a_source_says_what_it_is(pair: tuple[MariaDb, MariaDb]) -> None:
    primary, replica = pair
    run_as_owner(primary, INSERT.format(uid="shown"))
    until_replicated(replica, "shown")
    assert examine(source_on(primary)).facts.bounded_by == ""
    assert examine(source_on(replica)).facts.bounded_by == "replica"
    primary.execute("SET GLOBAL read_only = 1")
    try:  # what was read of it a moment ago still holds
        deadline = time.monotonic() + SECONDS
        while examine(source_on(primary)).facts.bounded_by != "replica":
            assert time.monotonic() < deadline
    finally:
        primary.execute("SET GLOBAL read_only = 0")
