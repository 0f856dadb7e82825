"""An archive that hangs takes a few threads of a web worker, and not all."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from itertools import islice

import pytest
from django.db import OperationalError

from msgplatform.core.errors import Unavailable
from notify.archive.stores import Places

THREADS, PLACES = 16, 4  # of a web worker; of them for an archive
PATIENCE_SECONDS, LONG_SECONDS = 60.0, 120.0  # a read that waits outlasts the patience


class Archive:
    """Answers when `answers` is set; a read that has waited fails."""

    def __init__(self, **seconds: float) -> None:
        self.places, self.answers = Places(**seconds), threading.Event()
        self.reads = threading.Semaphore(0)  # released by each read that has a place

    def read(self) -> None:
        with self.places.take():
            self.reads.release()
            self.answers.wait(LONG_SECONDS)
            raise OperationalError(2013, "Lost connection to server during query")


def test_others_are_answered_while_some_wait() -> None:
    archive = Archive(long_seconds=0.1, away_seconds=0.1)
    with ThreadPoolExecutor(THREADS) as pool:
        reads = [pool.submit(archive.read) for _ in range(THREADS)]
        for read in islice(as_completed(reads, PATIENCE_SECONDS), THREADS - PLACES):
            assert isinstance(read.exception(), Unavailable)
        waiting = [read for read in reads if not read.done()]
        assert len(waiting) == PLACES
        archive.answers.set()
        assert all(isinstance(read.exception(), OperationalError) for read in waiting)
    time.sleep(0.1)
    with ExitStack() as stack:  # it is asked again, and reads within a read have one place
        for _ in range(PLACES + 1):
            stack.enter_context(archive.places.take())


def test_a_read_fails_at_once_while_others_hang_and_a_moment_later() -> None:
    archive = Archive(max_wait_seconds=LONG_SECONDS, long_seconds=0.0, away_seconds=3600)
    with ThreadPoolExecutor(THREADS) as pool:
        waiting = [pool.submit(archive.read) for _ in range(PLACES)]
        assert all(archive.reads.acquire(timeout=PATIENCE_SECONDS) for _ in waiting)
        with pytest.raises(Unavailable):
            pool.submit(archive.read).result(PATIENCE_SECONDS)
        archive.answers.set()
        assert all(isinstance(read.exception(), OperationalError) for read in waiting)
    with pytest.raises(Unavailable):
        archive.read()


def test_a_quick_archive_is_read_by_all() -> None:
    # A busy machine lets a thread stand still for longer than a quick read lasts elsewhere.
    places = Places(max_wait_seconds=60, long_seconds=60)

    def read(_number: int) -> None:
        with places.take():
            time.sleep(0.01)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(read, range(200)))
