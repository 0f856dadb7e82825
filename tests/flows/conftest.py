from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from msgplatform.core.servers.embedded import MariaDb
from tests.cluster import Cluster

DATABASES = ["sqlite", "mariadb"]


@pytest.fixture(params=DATABASES)
def cluster(request: pytest.FixtureRequest, mariadb: MariaDb) -> Iterator[Cluster]:
    """A running platform with a database of its own: every flow test runs on both kinds."""
    yield from _running(request.param, mariadb)


@pytest.fixture(scope="module", params=DATABASES)
def shared_cluster(request: pytest.FixtureRequest, mariadb: MariaDb) -> Iterator[Cluster]:
    """The same for a whole module, for tests that leave it running."""
    yield from _running(request.param, mariadb)


def _running(kind: str, mariadb: MariaDb) -> Iterator[Cluster]:
    # Short, because a socket's path may have only 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="mp-flow-"))
    name = folder.name.replace("-", "_")
    url = mariadb.create(name) if kind == "mariadb" else f"sqlite:///{folder / 'platform.db'}"
    with Cluster(folder, url) as running:
        yield running
    shutil.rmtree(folder, ignore_errors=True)
