"""Maker: splits accepted messages (`splitter.py`) and queues due deliveries (`dispatcher.py`).

What is queued was claimed and committed before; a maker killed in between leaves deliveries whose
lease runs out, and the next one queues them again.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Collection, Mapping

from msgplatform.core.connections import RedisError
from msgplatform.core.daemons.daemon import Worker
from msgplatform.core.daemons.timer import Every, Gather
from msgplatform.core.queues import names, recovery
from notify import signals
from notify.directory import Subscriptions
from notify.maker import expiry, held
from notify.maker.capacity import Capacity
from notify.maker.dispatcher import Dispatcher
from notify.maker.payloads import Texts
from notify.maker.splitter import BATCH, Splitter
from notify.monitor.catalogue_subjects import CatalogueSubjects

RECOVER_EVERY_SECONDS = 10.0
SETTLE_EVERY_SECONDS = 2.0
# Under load a turn waits so long for more: ten statements and a commit are for all of them.
GATHER_SECONDS = 0.05
_LONG_SECONDS = 0.05  # of queueing


class Maker(Worker):
    """With `only`, ids of subscriptions, it does nothing but queue for those."""

    role = "maker"
    wake_signal = signals.MAKER

    def __init__(self, only: Collection[int] = ()) -> None:
        super().__init__()
        self.subscriptions = Subscriptions()
        self._event_types = CatalogueSubjects()
        self.splitter = Splitter(self.subscriptions, self._event_types)
        self.dispatcher = Dispatcher(self.subscriptions, only)
        self._texts = Texts()
        self._dedicated = bool(only)
        self._next_recover = Every(RECOVER_EVERY_SECONDS)
        self._next_settle = Every(SETTLE_EVERY_SECONDS)
        self._next_expire = Every(SETTLE_EVERY_SECONDS)
        self._gather = Gather(BATCH, GATHER_SECONDS)

    def start(self) -> None:
        # What is loaded stays for ever: the garbage collector need not look at it for each batch.
        gc.collect()
        gc.freeze()

    def turn(self) -> bool:
        self.subscriptions.refresh()
        if self._dedicated:
            return self._work({}) > 0
        if self._next_recover.take():
            # Clean up after killed senders and markers. A result is the only copy of what a
            # subscriber answered and is put back; an order can be made again.
            recovery.recover(put_back=names.has_only_copies)
        settled = self.settle_held()
        worked = self._work(self.splitter.waiting())
        if pause := self._gather.note_batch(worked):
            self.stopping.wait(pause)
        return bool(worked or settled)

    def settle_held(self) -> int:
        """Every two seconds, and without a pause while there is something to settle; how many."""
        if not self._next_settle.is_due:
            return 0
        moved = held.settle()
        if not moved:
            self._next_settle.restart()
        return moved

    def _work(self, accepted: Mapping[int, int]) -> int:
        """Queue what is due, then split: older deliveries go first. `accepted`: messages that wait
        to be split, of each system."""
        due = self.dispatcher.due()
        if not due and not accepted:
            return 0
        self._texts.forget()
        began = time.monotonic()
        try:
            capacity = Capacity.read(self.subscriptions.all())
            queued, behind = self.dispatcher.queue(due, capacity, self._texts)
        except RedisError:
            if accepted:  # splitting needs no Redis
                self.heartbeat.done += self.splitter.split(accepted, None)[0]
            raise
        split = at_once = expired = 0
        if not self._dedicated and time.monotonic() - began > _LONG_SECONDS:
            accepted = self.splitter.waiting()  # what came meanwhile need not wait for a turn more
        if accepted:
            split, at_once = self.splitter.split(accepted, capacity, behind)
        # Every two seconds, and without a pause while there is something to end.
        if not self._dedicated and self._next_expire.is_due:
            behind_breaker = [
                (backlog.subscription, state.open_for)
                for backlog in due
                if (state := capacity.live.get(backlog.subscription.id)) and state.is_open
            ]
            expired = expiry.expire(behind_breaker, self._event_types)
            if not expired:
                self._next_expire.restart()
        self.heartbeat.done += split + queued + at_once
        return split + queued + expired
