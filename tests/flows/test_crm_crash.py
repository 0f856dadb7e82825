"""CRM sync under fire: poller and handler killed with work in flight, Redis emptied, and a CRM that
fails after it has stored. Nothing lost, nothing twice, nothing older over something newer."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from msgplatform.core.servers.embedded import MariaDb
from tests.cluster import WEB, Cluster
from tests.flows.crm_server import CrmServer, adapter_settings
from tests.flows.crm_traffic import OPEN, SET_UP, STORY, Ledger, Writer

FULL = bool(os.environ.get("MSGPLATFORM_FULL_LOAD"))
LEADS = 5_000 if FULL else 300  # at least: writing lasts until the last kill
KILLS_A_ROLE = 5 if FULL else 1
QUEUED_AT_FLUSH = 200 if FULL else 50
POLLER, HANDLER = "run_sync_poller", "run_sync_handler"
FAILPOINTS = (
    (POLLER, "after_store_before_queue"),
    (HANDLER, "after_send_before_mark"),
    (HANDLER, "after_mark_before_done"),
)
TABLE = """
CREATE TABLE customer (code VARCHAR(40) PRIMARY KEY, name TEXT, phone TEXT, city TEXT,
                       revision BIGINT)
"""
SQL_CRM = {"table": "customer", "key_column": "code", "version_column": "revision"}
QUEUED = """
from crmsync.models import Record
print(Record.objects.filter(state=Record.State.QUEUED).count())
"""


@pytest.fixture(params=["mariadb"] if FULL else ["sqlite", "mariadb"])
def cluster(request: pytest.FixtureRequest, mariadb: MariaDb) -> Iterator[Cluster]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mp-crm-")))
        name = folder.name.replace("-", "_")
        is_mariadb = request.param == "mariadb"
        url = mariadb.create(name) if is_mariadb else f"sqlite:///{folder / 'platform.db'}"
        made = Cluster(folder, url, (WEB, POLLER, HANDLER))
        made.environment |= {"CRM_LEASE_SECONDS": "12", "CRM_BREAKER_SECONDS": "2"}
        yield stack.enter_context(made)


def table(path: Path) -> dict[str, tuple[str, str, str]]:
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT code, name, phone, city FROM customer").fetchall()
    return {code: (name or "", phone or "", city or "") for code, name, phone, city in rows}


def test_two_crms_end_equal_to_the_hive(cluster: Cluster) -> None:
    path = cluster.folder / "customers.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute(TABLE)
    with CrmServer() as server:
        crms = [
            ("customers", "sql", SQL_CRM, {"url": f"sqlite:///{path}"}, {}),
            ("contacts", "http", adapter_settings(server.url), {}, {"concurrency": 2}),
        ]
        token = cluster.script(SET_UP.format(crms=crms))
        ledger = Ledger()
        writers = [Writer(cluster, token, ledger, number) for number in range(3)]
        for writer in writers:
            writer.wanted = LEADS // len(writers)
            writer.start()
        kill_log = fire(cluster, server, ledger)
        for writer in writers:
            writer.over.set()
        for writer in writers:
            writer.join(300)
            assert not writer.is_alive()
        expected = ledger.expected()
        await_equal(cluster, lambda: table(path), expected, "the table", {})
        await_equal(cluster, server.books.held, expected, "the contacts", server.books.calls)
        cluster.wait_until(lambda: cluster.script(OPEN) == 0, "every record to be marked", 300)
        books = server.books
        print("\n".join(kill_log))
        print(
            f"{len(ledger.leads)} leads, {ledger.changes} writes, {len(expected)} left; "
            f"{books.failed} calls stored and not confirmed; made twice: {len(books.twice())}"
        )
        assert books.twice() == []
        assert books.regressions == []
        assert books.failed > 10
        assert len(ledger.leads) >= LEADS


def await_equal(
    cluster: Cluster,
    held: Callable[[], Mapping[str, object]],
    expected: Mapping[str, object],
    what: str,
    calls: Mapping[str, object],
) -> None:
    """Fails with the stories of some leads that differ."""
    try:
        cluster.wait_until(lambda: held() == expected, f"{what} to equal the hive", 300)
    except AssertionError as error:
        found = held()
        keys = [k for k in {**found, **expected} if found.get(k) != expected.get(k)]
        told = [
            f"{key}: {found.get(key)} is not {expected.get(key)}: "
            f"{cluster.script(STORY.format(key=key))} {calls.get(key)}"
            for key in keys[:5]
        ]
        raise AssertionError("\n".join([f"{len(keys)} differ in {what}", *told])) from error


def fire(cluster: Cluster, server: CrmServer, ledger: Ledger) -> list[str]:
    """Every program killed several times, once at each named place, and Redis emptied once."""
    log = []

    def await_progress() -> None:
        made = len(server.books.made)
        cluster.wait_until(lambda: len(server.books.made) > made + 10, "contacts between kills")

    for number in range(KILLS_A_ROLE):
        for role in (POLLER, HANDLER):
            await_progress()
            cluster.restart(role)
            log.append(f"kill {role}, {ledger.changes} writes, {len(server.books.made)} contacts")
        if number == 0:
            cluster.pause(HANDLER)
            cluster.wait_until(
                lambda: cluster.script(QUEUED) >= QUEUED_AT_FLUSH, "records to be queued"
            )
            cluster.redis.flushall()
            cluster.resume(HANDLER)
            log.append("flush")
    for role, place in FAILPOINTS:
        await_progress()
        cluster.kill(role)
        cluster.start(role, failpoint=place)
        cluster.wait_until(lambda role=role: cluster.died(role), f"{role} to die {place}")
        cluster.start(role)
        log.append(f"{role} died {place}")
    return log
