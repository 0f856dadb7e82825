"""Wake the program that does a kind of work when there is new work, so that it need not poll often.

A ring is a PUBLISH through the work Redis and is kept nowhere: when it is lost, the work waits for
the program's next poll, and nothing else happens. `ring()` never waits for Redis: a thread
publishes.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable

from redis.client import PubSub

from msgplatform.core import logging
from msgplatform.core.connections import RedisError, work_redis
from msgplatform.core.daemons.thread_loop import ThreadLoop

log = logging.get(__name__)

_CHANNEL_PREFIX = "wake:"
# The publishing thread sleeps for so long after each PUBLISH: rings of that time share the next.
_TOGETHER_SECONDS = 0.005
# Longest wait for a ring before the listener looks whether it has been asked to stop.
_LISTEN_SECONDS = 5.0
_UNTIL_RUNG = 86_400.0  # a pause that only `ring()` ends; after a day one PUBLISH too many


class WakeSignal:
    """Rings for one kind of work. `name` is that of the role that does it, such as "maker"."""

    def __init__(self, name: str) -> None:
        self.channel = _CHANNEL_PREFIX + name
        self._begin()
        again = weakref.WeakMethod(self._begin)
        os.register_at_fork(after_in_child=lambda: (method := again()) and method())

    def _begin(self) -> None:
        """The state of a new process. A forked child has no running thread, and another thread of
        its parent may have held the lock."""
        self._starting = threading.Lock()
        self._ringer: ThreadLoop | None = None

    def ring(self) -> None:
        """Say that there is new work. Call it after the commit: listeners look for it at once.

        Returns at once, whatever Redis does.
        """
        try:
            with self._starting:
                if self._ringer is None:
                    ringer = ThreadLoop(self.channel, self._publish)
                    ringer.start()
                    self._ringer = ringer
                ringer = self._ringer
            ringer.wake()
        except RuntimeError:  # no thread can be started; the work is committed, and will be polled
            log.warning("bell_not_rung", channel=self.channel)

    def _publish(self) -> float:
        work_redis().publish(self.channel, b"")
        time.sleep(_TOGETHER_SECONDS)
        return _UNTIL_RUNG


class Listener:
    """Calls `wake` when a bell rings, and after each new connection, as rings before it were lost.

    Only the listening thread uses the Redis subscription: a PubSub is not safe between threads.
    """

    def __init__(self, bell: WakeSignal, wake: Callable[[], None]) -> None:
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
            self._wake()  # rings before this subscription were lost
        try:
            heard = self._pubsub.get_message(timeout=_LISTEN_SECONDS)
        except RedisError:
            self._leave()  # the next call subscribes anew
            raise
        if heard:
            self._wake()
        return 0.0

    def _leave(self) -> None:
        pubsub, self._pubsub = self._pubsub, None
        if pubsub is not None:
            pubsub.close()
