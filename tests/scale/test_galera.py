"""A database that survives its server: Galera with one writer behind HAProxy, under load."""

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from msgplatform.monitor.watch import GALERA, WRITERS
from tests.scale import books
from tests.scale.books import Account
from tests.scale.conftest import Figures
from tests.scale.galera import Galera, documented, remove
from tests.scale.platform import DATABASE, GaleraPlatform, SpreadPlatform
from tests.scale.strikes import CALM_SECONDS, IS_SHARE, MAX_GAP

AFTER_QUORUM = MAX_GAP / 2
AWAY_SECONDS = 10.0
STRIKE_SECONDS = 15.0
# As a migration does it.
COLUMN = """
from django.db import connection, models
from notify.models import BizMsg
field = models.CharField(max_length=20, null=True, db_index=True)
field.set_attributes_from_name("of_a_later_release")
for change in ("add_field", "remove_field"):
    with connection.schema_editor() as editor:
        getattr(editor, change)(BizMsg, field)
"""
ASK = """
from django.db import connection
with connection.cursor() as cursor:
    cursor.execute("SELECT COUNT(*) FROM large")
    print(cursor.fetchone()[0])
"""


@pytest.fixture(scope="module")
def galera() -> Iterator[Galera]:
    # Short, because a socket's path may have only 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="mp-galera-"))
    with Galera(folder) as cluster:
        yield cluster
    remove(folder)


@pytest.fixture(scope="module")
def running(galera: Galera) -> Iterator[GaleraPlatform]:
    folder = Path(tempfile.mkdtemp(prefix="mp-scale-"))
    with GaleraPlatform(folder, galera) as platform:
        yield platform
    remove(folder)


@pytest.fixture
def platform(running: GaleraPlatform) -> Iterator[GaleraPlatform]:
    """The platform on a cluster that is whole; no program has ended when the test is over."""
    running.galera.make_whole()
    yield running
    assert [name for name in running.processes if running.died(name)] == []


def check(account: Account, figures: Figures, breaks: int, max_gap: float = MAX_GAP) -> None:
    """Nothing is lost, and the intake and the deliveries went on in time. `breaks` is how often
    a connection was cut: each time at most one group of requests is being committed."""
    figures.add(
        str(account), acknowledged=account.accepted, lost=account.lost,
        duplicates=account.duplicates,
    )  # fmt: skip
    if max_gap == MAX_GAP:  # else a person ends it
        figures.add_gap("intake", account.gap_of_intake)
        figures.add_gap("delivery", account.gap_of_delivery)
    assert (account.lost, account.doubled_keys, account.foreign) == (0, 0, 0)
    assert account.duplicates <= account.in_hand
    if IS_SHARE:
        return
    assert account.trouble["outcome-unknown"] <= breaks * books.THREADS
    assert account.gap_of_intake <= max_gap, os.getloadavg()
    assert account.gap_of_delivery <= max_gap, os.getloadavg()


def test_the_writer_is_killed(platform: GaleraPlatform, figures: Figures, run: int) -> None:
    """And then the new writer."""
    galera = platform.galera
    with books.books(platform) as (book, sinks):
        time.sleep(CALM_SECONDS)
        for _ in range(1 if IS_SHARE else 2):
            writer = galera.writer()
            with books.struck(platform, book, sinks):
                writer.kill()
            galera.await_writer_beside(writer)
            time.sleep(CALM_SECONDS)
            writer.come_back()
            time.sleep(CALM_SECONDS)
            # No fail-back; on a busy machine HAProxy may leave a node that answers too late.
            assert IS_SHARE or galera.writer() is not writer
        account = books.close(platform, book, sinks)
    check(account, figures, breaks=2)


def test_the_writer_is_frozen(platform: GaleraPlatform, figures: Figures, run: int) -> None:
    """It is out of the cluster until it goes on, and comes back as one of the others. An alert says
    so meanwhile."""
    galera = platform.galera
    with books.books(platform) as (book, sinks):
        time.sleep(CALM_SECONDS)
        writer = galera.writer()
        with books.struck(platform, book, sinks):
            writer.freeze()
        try:
            time.sleep(30)
            assert galera.writer() is not writer
            platform.wait_until(lambda: GALERA in platform.open_alerts(), "the alert", 60)
        finally:
            writer.thaw()
        platform.wait_until(lambda: GALERA not in platform.open_alerts(), "the alert's end", 60)
        time.sleep(STRIKE_SECONDS)
        assert galera.writer() is not writer
        account = books.close(platform, book, sinks)
    check(account, figures, breaks=1)


def test_haproxy_is_killed(platform: GaleraPlatform, figures: Figures, run: int) -> None:
    """It is started again as systemd does, 0.1 s later; its table of the writer is lost with it."""
    haproxy = platform.galera.haproxy
    with books.books(platform) as (book, sinks):
        time.sleep(CALM_SECONDS)
        with books.struck(platform, book, sinks):
            haproxy.kill()
        time.sleep(0.1)
        haproxy.start()
        time.sleep(STRIKE_SECONDS)
        account = books.close(platform, book, sinks)
    check(account, figures, breaks=1)


def test_the_quorum_is_lost(platform: GaleraPlatform, figures: Figures, run: int) -> None:
    """Two of three nodes are killed at once. The last one answers SELECT 1 and takes no work, until
    a person makes it the primary; the platform says what is true meanwhile."""
    galera = platform.galera
    writer = galera.writer()
    victims = [node for node in galera.nodes if node is not writer]
    with books.books(platform) as (book, sinks):
        time.sleep(CALM_SECONDS)
        with books.struck(platform, book, sinks):
            killed_at = time.time()
            for node in victims:
                node.kill()
        time.sleep(STRIKE_SECONDS)
        assert writer.execute("SELECT 1") == ((1,),)
        assert platform.readiness()["database"] != "ok"
        assert "no quorum" in platform.doctor(writer)
        assert ("wsrep_cluster_status", "non-Primary") in writer.execute(documented("wsrep_ready"))
        writer.execute(documented("pc.bootstrap"))
        bootstrapped_at = time.time()
        time.sleep(STRIKE_SECONDS)
        for node in victims:
            node.come_back()
        account = books.close(platform, book, sinks)
        back = [
            min(at for at in times if at > bootstrapped_at) - bootstrapped_at
            for times in (book.times, *(sink.times() for sink in sinks.values()))
        ]
    figures.add(f"back {max(back):.1f} s after the quorum")
    check(account, figures, breaks=1, max_gap=bootstrapped_at - killed_at + AFTER_QUORUM)
    assert max(back) <= AFTER_QUORUM, os.getloadavg()


def test_everything_is_down(platform: GaleraPlatform, figures: Figures, run: int) -> None:
    """First HAProxy, then all nodes: no program ends, no delivery is blamed, answers are true."""
    galera = platform.galera
    with books.books(platform) as (book, sinks):
        time.sleep(CALM_SECONDS)
        with books.struck(platform, book, sinks):
            galera.haproxy.kill()
        time.sleep(AWAY_SECONDS)
        assert platform.readiness()["database"] != "ok"
        galera.haproxy.start()
        time.sleep(STRIKE_SECONDS)
        assert platform.readiness()["database"] == "ok"
        with books.struck(platform, book, sinks):
            for node in galera.nodes:
                node.kill()
        time.sleep(AWAY_SECONDS)
        assert platform.readiness()["database"] != "ok"
        galera.make_whole()
        whole_at = time.time()
        time.sleep(STRIKE_SECONDS)
        account = books.close(platform, book, sinks)
    figures.add(f"back {min(at for at in book.times if at > whole_at) - whole_at:.1f} s after all")
    check(account, figures, breaks=2, max_gap=60)
    assert account.trouble["unavailable"] > 0


def test_migrate(platform: GaleraPlatform, figures: Figures, run: int) -> None:
    """The tables of another flow are made, and a column of the busiest table comes and goes."""
    with books.books(platform) as (book, sinks):
        time.sleep(CALM_SECONDS)
        for target in (["crmsync", "zero"], ["crmsync"]):
            said = platform.manage("migrate", *target, FLOWS="notify,crmsync")
            assert "Traceback" not in said, said[-3000:]
        platform.console.run(COLUMN)
        time.sleep(CALM_SECONDS)
        account = books.close(platform, book, sinks)
    check(account, figures, breaks=1)


def test_the_archiver_drops_months(platform: GaleraPlatform, figures: Figures, run: int) -> None:
    platform.console.run("from tests.scale import old_months; old_months.begin_anew()")
    with books.books(platform) as (book, sinks):
        time.sleep(CALM_SECONDS)
        platform.console.run("from tests.scale import old_months; old_months.publish()")
        platform.start("run_archiver")
        platform.wait_until(
            lambda: platform.said("run_archiver").count("DROP PARTITION") >= run,
            "a month to go, after all that earlier tests left was moved", 420,
        )  # fmt: skip
        time.sleep(STRIKE_SECONDS)
        platform.stop("run_archiver")
        del platform.processes["run_archiver"]
        account = books.close(platform, book, sinks)
    assert platform.script("from tests.scale import old_months; old_months.count()") == 0
    check(account, figures, breaks=1)


def test_two_writers_by_mistake(galera: Galera, figures: Figures, run: int) -> None:
    """A proxy that spreads connections: the alert says so, and Notify loses nothing."""
    galera.make_whole()
    galera.spreading.start()
    folder = Path(tempfile.mkdtemp(prefix="mp-scale-"))
    platform = SpreadPlatform(folder, galera, f"spread_{run}")
    with platform, books.books(platform) as (book, sinks):
        platform.wait_until(lambda: WRITERS in platform.open_alerts(), "the alert", 90)
        assert "several servers of the database" in platform.manage("doctor")
        account = books.close(platform, book, sinks)
    galera.spreading.kill()
    remove(folder)
    check(account, figures, breaks=1)


def test_an_answer_after_a_failover_is_not_out_of_date(
    platform: GaleraPlatform, figures: Figures, run: int
) -> None:
    """A node that still applies a large transaction is asked as the next writer would be."""
    galera = platform.galera
    writer = galera.writer()
    other = next(node for node in galera.nodes if node is not writer)
    writer.execute(f"DROP TABLE IF EXISTS {DATABASE}.large")
    writer.execute(f"CREATE TABLE {DATABASE}.large (id INT PRIMARY KEY, text VARCHAR(200))")
    writer.execute(
        f"INSERT INTO {DATABASE}.large SELECT seq, REPEAT('x', 200) FROM {DATABASE}.seq_1_to_150000"
    )
    count = f"SELECT COUNT(*) FROM {DATABASE}.large"
    (plain,), *_ = other.execute(count)
    said = platform.manage("shell", "-c", ASK, DATABASE_URL=other.url(DATABASE))
    figures.add(f"rows seen at once without the wait: {plain}, with it: {said.split()[-1]}")
    assert said.split()[-1] == "150000"
    writer.execute(f"DROP TABLE {DATABASE}.large")
