"""A server that hangs, as a stopped machine or a disk that does not answer makes it."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from bench.harness.mariadb import MariaDb
from msgplatform.core.servers.private_server import PrivateServer
from tests.waiting import freeze


@contextmanager
def hanging(server: PrivateServer | MariaDb) -> Iterator[None]:
    assert server.pid
    freeze(server.pid)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)
