"""A server that hangs, as a stopped machine or a disk that does not answer makes it."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from bench.harness.mariadb import MariaDb
from msgplatform.core.servers.private_server import PrivateServer


@contextmanager
def hanging(server: PrivateServer | MariaDb) -> Iterator[None]:
    assert server.pid
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)
