"""An archive that hangs takes a few threads of a web worker, and not all."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from django.db import OperationalError

from msgplatform.core.errors import Unavailable
from notify.archive.stores import Places

THREADS = 16


class Archive:
    """Answers when `answers` is set; a read that has waited fails."""

    def __init__(self) -> None:
        self.places, self.answers = Places(away_seconds=0.5), threading.Event()

    def read(self) -> float:
        """Seconds until it was known that the archive cannot be read."""
        began = time.monotonic()
        with suppress(Unavailable, OperationalError), self.places.take():
            self.answers.wait(30)
            raise OperationalError(2013, "Lost connection to server during query")
        return time.monotonic() - began


def test_others_are_answered_while_some_wait() -> None:
    archive = Archive()
    with ThreadPoolExecutor(THREADS) as pool:
        reads = [pool.submit(archive.read) for _ in range(THREADS)]
        time.sleep(2.2)  # longer than an answer takes: the archive hangs
        waiting = [each for each in reads if not each.done()]
        assert len(waiting) == 4
        assert max(each.result() for each in reads if each.done()) < 2.0
        assert archive.read() < 0.2, "at once, while others hang"
        archive.answers.set()
        for each in waiting:
            each.result()
        assert archive.read() < 0.2, "at once, a moment after a hang"
    time.sleep(0.5)
    with archive.places.take(), archive.places.take():
        """It is asked again; a read within a read has one place."""


def test_a_quick_archive_is_read_by_all() -> None:
    # A busy machine lets a thread stand still for longer than a quick read lasts elsewhere.
    places = Places(max_wait_seconds=60, long_seconds=60)

    def read(_number: int) -> None:
        with places.take():
            time.sleep(0.01)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(read, range(200)))
