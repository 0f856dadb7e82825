"""Two writers by mistake: a proxy that spreads connections, and SMS, CRM sync and Feed at work."""

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from msgplatform.monitor.watch import WRITERS
from tests.cluster import MIGRATE
from tests.scale import every_flow
from tests.scale.conftest import Figures
from tests.scale.galera import Galera, remove
from tests.scale.machines import TwoMachines
from tests.scale.platform import OPEN_ALERTS

DATABASE = "spread"
LOAD_SECONDS = 60.0
HASTE = 4.0
_COUNTS = """
SHOW GLOBAL STATUS WHERE Variable_name IN
  ('wsrep_replicated', 'wsrep_local_cert_failures', 'wsrep_local_bf_aborts')
"""


class SpreadMachines(TwoMachines):
    """Its programs connect through a proxy that spreads connections over all nodes. A person
    migrates, and the console asks, at one node."""

    def __init__(self, folder: Path, galera: Galera) -> None:
        super().__init__(folder, galera.nodes[0].url(DATABASE), every_flow.SMGS)
        self.galera = galera
        self.environment |= every_flow.SETTINGS

    def fill_database(self) -> None:
        self.galera.nodes[0].execute(f"CREATE DATABASE {DATABASE}")
        self.console.run(MIGRATE)
        self.environment["DATABASE_URL"] = self.galera.url(DATABASE, self.galera.spreading)


@pytest.fixture
def machines() -> Iterator[SpreadMachines]:
    # Short, because a socket's path may have only 107 bytes. Redis closes its folder to others, and
    # the nodes run as another user.
    folders = [Path(tempfile.mkdtemp(prefix=f"mp-{name}-")) for name in ("galera", "spread")]
    with Galera(folders[0]) as galera:
        galera.make_whole()
        galera.spreading.start()
        with SpreadMachines(folders[1], galera) as running:
            yield running
    for folder in folders:
        remove(folder)


def test_every_flow_with_two_writers(machines: SpreadMachines, run: int, figures: Figures) -> None:
    with every_flow.every_flow(machines, HASTE) as loads:
        time.sleep(LOAD_SECONDS)
        machines.wait_until(lambda: WRITERS in machines.script(OPEN_ALERTS), "the alert")
        loads.finish()
        loads.check(figures)
    counts = [dict(node.execute(_COUNTS)) for node in machines.galera.nodes]
    written, *conflicts = (
        [int(each[name]) for each in counts]
        for name in ("wsrep_replicated", "wsrep_local_cert_failures", "wsrep_local_bf_aborts")
    )
    figures.add(
        f"transactions of each node {written}, conflicts {sum(map(sum, conflicts))}, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    assert min(written) > 0
    assert sum(map(sum, conflicts)) > 0
    assert loads.faults == {}
