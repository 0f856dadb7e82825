"""CRM sync under fire: poller and handler killed with work in flight, Redis emptied, and a CRM that
fails after it has stored. Nothing lost, nothing twice, nothing older over something newer."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.harness.mariadb import MariaDb
from tests.cluster import WEB, Cluster
from tests.flows.conftest import CRASH_KINDS
from tests.flows.crm_account import two_crms
from tests.flows.crm_server import Books
from tests.flows.crm_traffic import Ledger, Writer

FULL = bool(os.environ.get("MSGPLATFORM_FULL_LOAD"))
LEADS = 5_000 if FULL else 300  # at least: writing lasts until the last kill
KILLS_A_ROLE = 5 if FULL else 1
QUEUED_AT_FLUSH = 200 if FULL else 50
# Between two changes of a writer: without a pause it leaves no core for the programs' starts.
PAUSE_SECONDS = 0.0 if FULL else 0.02
POLLER, HANDLER = "run_sync_poller", "run_sync_handler"
FAILPOINTS = (
    (POLLER, "after_store_before_queue"),
    (HANDLER, "after_send_before_mark"),
    (HANDLER, "after_mark_before_done"),
)
QUEUED = """
from crmsync.models import Record
print(Record.objects.filter(state=Record.State.QUEUED).count())
"""


class ShortLeases(Cluster):
    """A killed poller's policies are free after seconds, not after half a minute."""

    def _command(self, name: str) -> list[str]:
        if name == POLLER:
            return [sys.executable, "-m", "tests.programs.hasty_program", "leases", name]
        return super()._command(name)


@pytest.fixture(params=CRASH_KINDS)
def cluster(request: pytest.FixtureRequest, mariadb: MariaDb) -> Iterator[Cluster]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mp-crm-")))
        name = folder.name.replace("-", "_")
        is_server = request.param == "server"
        url = mariadb.create(name) if is_server else f"sqlite:///{folder / 'platform.db'}"
        made = (Cluster if FULL else ShortLeases)(folder, url, (WEB, POLLER, HANDLER))
        made.expected_errors = set()
        made.environment |= {"CRM_LEASE_SECONDS": "12", "CRM_BREAKER_SECONDS": "2"}
        yield stack.enter_context(made)


def test_two_crms_end_equal_to_the_hive(cluster: Cluster) -> None:
    with two_crms(cluster) as crms:
        ledger = Ledger()
        writers = [Writer(cluster, crms.token, ledger, number) for number in range(3)]
        for writer in writers:
            writer.wanted, writer.pause = LEADS // len(writers), PAUSE_SECONDS
            writer.start()
        kill_log = fire(cluster, crms.books, ledger)
        for writer in writers:
            writer.finish()
        account = crms.check(ledger)
        print("\n".join([*kill_log, account]))
        assert crms.books.failed > 10
        assert len(ledger.leads) >= LEADS


def fire(cluster: Cluster, books: Books, ledger: Ledger) -> list[str]:
    """Every program killed several times, once at each named place, and Redis emptied once."""
    log = []

    def await_progress() -> None:
        made = len(books.made)
        cluster.wait_until(lambda: len(books.made) > made + 10, "contacts between kills")

    for number in range(KILLS_A_ROLE):
        for role in (POLLER, HANDLER):
            await_progress()
            cluster.restart(role)
            log.append(f"kill {role}, {ledger.changes} writes, {len(books.made)} contacts")
        if number == 0:
            cluster.pause_until(
                HANDLER, lambda: cluster.script(QUEUED) >= QUEUED_AT_FLUSH, "records to be queued"
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
