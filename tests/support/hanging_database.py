"""A MariaDB that hangs, as a stopped machine or a disk that does not answer makes it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from tests.servers import Servers


@contextmanager
def hanging(servers: Servers) -> Iterator[None]:
    pid = servers.mariadb().pid
    assert pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
