from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from msgplatform.core.embedded import MariaDb
from tests.flows.cluster import Cluster


@pytest.fixture(params=["sqlite", "mariadb"])
def cluster(request: pytest.FixtureRequest, mariadb: MariaDb) -> Iterator[Cluster]:
    """A running platform with a database of its own: every flow test runs on both kinds."""
    # Short, because a socket's path may have only 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="mp-flow-"))
    if request.param == "mariadb":
        url = mariadb.create("flow")
    else:
        url = f"sqlite:///{folder / 'platform.db'}"
    with Cluster(folder, url) as running:
        yield running
    shutil.rmtree(folder, ignore_errors=True)
