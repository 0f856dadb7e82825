"""Dispatcher: a receiver for each topic, and the pace that all dispatchers share.

A turn gives every topic one bounded batch, so that no topic waits for the end of another topic's
backlog.
"""

import os
import time
from collections.abc import Collection
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from msgplatform.core.daemons.daemon import Worker
from msgplatform.core.data import engines
from notify.feed.dispatcher.pacer import Pacer
from notify.feed.dispatcher.receiver import Receiver
from notify.feed.dispatcher.upkeep import Upkeep
from notify.feed.models import EventQueue
from notify.feed.monitor import backlog
from notify.feed.signals import DISPATCHER

# A pause lets foreground work go first. A longer pause would only let the backlog grow.
_MAX_PAUSE = 2.0
# Seconds that a statement waits for a lock, because the lock's holder may be frozen.
_PATIENCE_SECONDS = 1
# The dispatcher's niceness: on busy processors web requests go first.
_NICE = 5


class Dispatcher(Worker):
    """`topics`: the topics that this dispatcher works on, by default all."""

    role = "feed_dispatcher"
    wake_signal = DISPATCHER

    def __init__(self, topics: Collection[str] = EventQueue.Topic.values) -> None:
        super().__init__()
        self.pacer = Pacer(self.heartbeat, takes_turns=len(topics) == len(EventQueue.Topic.values))
        self._topics = topics
        self._was_idle = False
        self.receivers = [
            Upkeep() if topic == EventQueue.Topic.UPKEEP else Receiver(topic)
            for topic in EventQueue.Topic.values
            if topic in topics
        ]

    def start(self) -> None:
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(os.PRIO_PROCESS, 0, max(nice, _NICE))
        # All connections from now on get the short lock wait, also after a lost connection.
        connections.close_all()
        connection_created.connect(_be_impatient, dispatch_uid="feed-dispatcher")
        self.pacer.start()

    def stop(self) -> None:
        self.pacer.stop()

    def turn(self) -> bool:
        pace = self.pacer.current()
        if not pace.share:
            return False
        # An idle turn costs one statement for all topics instead of several in each receiver.
        if self._was_idle and not backlog.is_open(self._topics):
            return False
        total, pause = 0, 0.0
        for receiver in self.receivers:
            start = time.monotonic()
            if count := receiver.turn(pace):
                pause += receiver.pause_after(pace, count, time.monotonic() - start)
                total += count
        self._was_idle = not total
        self.heartbeat.done += total
        if total:
            self.pacer.note_work()
        if pause:
            self.stopping.wait(min(_MAX_PAUSE, pause))
        return total > 0


def _be_impatient(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    engine = engines.of_connection(connection)
    if engine.is_server:  # SQLite has one lock for all writers
        engine.limit_lock_wait(connection, _PATIENCE_SECONDS)
