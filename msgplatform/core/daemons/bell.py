"""Who makes work wakes who does it, so that a program that has nothing to do need not ask often.

A ring goes through the work Redis (PUBLISH) and is never kept: one that is lost, or that nobody
hears, costs the listener one poll and nothing more. Nobody who rings waits for Redis.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from redis.client import PubSub

from msgplatform.core import logging
from msgplatform.core.connections import RedisError, work_redis
from msgplatform.core.daemons.thread_loop import ThreadLoop

log = logging.get(__name__)

_CHANNEL = "wake:"
# Rings that follow one another within this time (seconds) are published as one.
_TOGETHER_SECONDS = 0.005
# Longest wait for a ring before the listener looks whether it has been asked to stop.
_LISTEN_SECONDS = 5.0
_FOR_EVER = 86_400.0


class Bell:
    """For one kind of work; `name` is the role that does it."""

    def __init__(self, name: str) -> None:
        self.channel = _CHANNEL + name
        self._starting = threading.Lock()
        # The process that started the thread, and the thread: a fork's child has none.
        self._ringer: tuple[int, ThreadLoop] | None = None

    def ring(self) -> None:
        """There is new work, and it is durable. Returns at once, whatever Redis does."""
        try:
            with self._starting:
                if self._ringer is None or self._ringer[0] != os.getpid():
                    ringer = ThreadLoop(self.channel, self._publish)
                    ringer.start()
                    self._ringer = os.getpid(), ringer
                ringer = self._ringer[1]
            ringer.wake()
        except RuntimeError:  # no thread can be started; this follows a commit and must not fail
            log.warning("bell_not_rung", channel=self.channel)

    def _publish(self) -> float:
        work_redis().publish(self.channel, b"")
        time.sleep(_TOGETHER_SECONDS)
        return _FOR_EVER


class Listener:
    """Calls `wake` when a bell rings; also when it may have missed a ring.

    The subscription belongs to the thread that listens: no other one touches it.
    """

    def __init__(self, bell: Bell, wake: Callable[[], None]) -> None:
        self._bell, self._wake = bell, wake
        self._pubsub: PubSub | None = None
        self._loop = ThreadLoop(f"hears-{bell.channel}", self._listen, last=self._leave)

    def start(self) -> None:
        self._loop.start()

    def stop(self) -> None:
        self._loop.stop()

    def _listen(self) -> float:
        if self._pubsub is None:
            pubsub = work_redis().pubsub(ignore_subscribe_messages=True)
            pubsub.subscribe(self._bell.channel)
            self._pubsub = pubsub
            self._wake()  # whoever rang before the subscription was not heard
        try:
            heard = self._pubsub.get_message(timeout=_LISTEN_SECONDS)
        except RedisError:
            self._leave()
            raise
        if heard:
            self._wake()
        return 0.0

    def _leave(self) -> None:
        pubsub, self._pubsub = self._pubsub, None
        if pubsub is not None:
            pubsub.close()
