"""The sender's writing thread: results go to the marker queue, then their orders are forgotten."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from msgplatform.core import logging
from msgplatform.core.daemons.daemon import AWAY
from msgplatform.core.failpoints import failpoint
from msgplatform.core.queues import jobs
from msgplatform.core.rates.backoff import Backoff
from notify import queue_names
from notify.orders import Result
from notify.sender.claimer import ClaimedOrder

log = logging.get(__name__)

BATCH = 500
# How long a lone result may wait for company: the price of one RQ job against a late mark.
GATHER_SECONDS = 0.05
# Results in memory while Redis is away; beyond it the sender stops sending.
MAX_WAITING = 20_000

Entry = tuple[ClaimedOrder, Result]


class ResultSink:
    """Writes results in batches. An order is forgotten after its last result is in Redis."""

    def __init__(self) -> None:
        # A deque and one event a batch: a queue would wake this thread for every single result.
        self._entries: deque[Entry] = deque()
        self._full = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="result-sink", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Write what is left, then end. Bounded: with Redis away the leases bring it back."""
        self._stopping.set()
        self._full.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    @property
    def has_room(self) -> bool:
        return len(self._entries) < MAX_WAITING

    def put(self, order: ClaimedOrder, result: Result) -> None:
        self.put_all([(order, result)])

    def put_all(self, entries: Sequence[Entry]) -> None:
        self._entries.extend(entries)
        if len(self._entries) >= BATCH and not self._full.is_set():
            self._full.set()

    # -- the thread ------------------------------------------------------------------------------
    def _run(self) -> None:
        while True:
            batch = self._gather()
            if batch:
                self._write(batch)
            elif self._stopping.is_set():
                return

    def _gather(self) -> list[Entry]:
        """Up to BATCH results; fewer when no more came within GATHER_SECONDS."""
        if len(self._entries) < BATCH:
            self._full.wait(GATHER_SECONDS)
        if not self._stopping.is_set():
            self._full.clear()
        batch: list[Entry] = []
        while self._entries and len(batch) < BATCH:
            batch.append(self._entries.popleft())
        return batch

    def _write(self, batch: list[Entry]) -> None:
        results = [result for _, result in batch]
        pause = Backoff(first=0.2, factor=2.0, cap=5.0)
        while not self._put(results):
            if self._stopping.wait(pause.next()):
                return
        failpoint("sender_after_results_before_done")
        finished = []
        for order, _ in batch:
            order.open_items -= 1
            if order.open_items == 0:
                finished.append(order.claimed)
        try:
            jobs.done(finished)
        except AWAY as error:
            # Their results are safe; recover() drops the orders when their claim is over.
            log.warning("orders_not_forgotten", count=len(finished), why=str(error)[:200])

    def _put(self, results: list[Result]) -> bool:
        failpoint("sender_before_results")
        try:
            jobs.put(queue_names.MARKER, [results], ttl=None)
        except AWAY as error:
            log.warning("results_waiting", count=len(results), why=str(error)[:200])
            return False
        except Exception:
            # This thread must not end: nobody else writes results.
            log.exception("results_not_written", count=len(results))
            return False
        return True
