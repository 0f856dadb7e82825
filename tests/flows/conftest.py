import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.harness.mariadb import MariaDb
from tests.cluster import PATIENT_LEASE_SECONDS, Cluster, times_of_notify

DATABASES = ["sqlite", "server"]  # the server of TEST_DATABASE, MariaDB without one
# Unless it names databases itself, a test of a flow runs on both under the full load only: what can
# differ runs on both in tests/integration, and the README and `up` run on SQLite. Crash tests run
# on SQLite with the reduced load, as SQLite is not for many writers (FLOW_DATABASES).
FULL = bool(os.environ.get("MSGPLATFORM_FULL_LOAD"))
KINDS = os.environ.get("FLOW_DATABASES", ",".join(DATABASES) if FULL else "server").split(",")
CRASH_KINDS = ["server"] if FULL else KINDS


@pytest.fixture(params=KINDS)
def cluster(request: pytest.FixtureRequest, mariadb: MariaDb) -> Iterator[Cluster]:
    """A running platform with a database of its own. A process may stand still for a while without
    anything being sent twice."""
    yield from _running(request.param, mariadb, PATIENT_LEASE_SECONDS)


@pytest.fixture(scope="module", params=KINDS)
def shared_cluster(request: pytest.FixtureRequest, mariadb: MariaDb) -> Iterator[Cluster]:
    """The same for a whole module, for tests that leave it running. A module whose tests kill its
    programs says in CLUSTER_LEASE_SECONDS how soon what they held comes back."""
    lease = getattr(request.module, "CLUSTER_LEASE_SECONDS", PATIENT_LEASE_SECONDS)
    # The web server tells that its worker was killed.
    yield from _running(request.param, mariadb, lease, {"web_server"})


def _running(
    kind: str, mariadb: MariaDb, lease: int, expected_errors: set[str] | None = None
) -> Iterator[Cluster]:
    # Short, because a socket's path may have only 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="mp-flow-"))
    name = folder.name.replace("-", "_")
    url = mariadb.create(name) if kind == "server" else f"sqlite:///{folder / 'platform.db'}"
    cluster = Cluster(folder, url)
    cluster.environment |= times_of_notify(lease)
    cluster.expected_errors = expected_errors
    with cluster as running:
        yield running
    shutil.rmtree(folder, ignore_errors=True)
