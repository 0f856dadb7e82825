"""Wake the program for a kind of work when there is new work, so that it need not poll often.

A signal is a PUBLISH in the work Redis, which does not keep it: after a lost signal the work waits
for the program's next poll. `send()` never waits for Redis: a thread publishes.
"""

import os
import threading
import time
import weakref
from collections.abc import Callable

from redis.client import PubSub

from msgplatform.core import logging
from msgplatform.core.connections import WORK, RedisError, work_redis
from msgplatform.core.daemons.thread_loop import ThreadLoop

log = logging.get(__name__)

_CHANNEL_PREFIX = "wake:"
# Seconds that the publishing thread sleeps after each PUBLISH. Signals that are sent meanwhile
# share the next PUBLISH.
_SHARED_SECONDS = 0.005
# The longest wait for a signal before the listener checks for a stop.
_LISTEN_SECONDS = 5.0
_UNTIL_SENT = 86_400.0  # only `send()` ends this pause; one needless PUBLISH a day


class WakeSignal:
    """The signal for one kind of work. `name` is the role that does the work, such as "maker"."""

    def __init__(self, name: str) -> None:
        self.channel = _CHANNEL_PREFIX + name
        self._begin()
        restart = weakref.WeakMethod(self._begin)
        os.register_at_fork(after_in_child=lambda: (method := restart()) and method())

    def _begin(self) -> None:
        """Set the state of a new process. A forked child has no running thread, and another thread
        of its parent may have held the lock."""
        self._starting = threading.Lock()
        self._publisher: ThreadLoop | None = None

    def send(self) -> None:
        """Signal new work. Call this after the commit, because listeners look for the work at once.

        Returns at once, whatever Redis does.
        """
        try:
            with self._starting:
                if self._publisher is None:
                    publisher = ThreadLoop(self.channel, self._publish)
                    publisher.start()
                    self._publisher = publisher
                publisher = self._publisher
            publisher.wake()
        except RuntimeError:  # no thread can be started; the work is committed, and will be polled
            log.warning("wake_signal_not_sent", channel=self.channel)

    def _publish(self) -> float:
        work_redis().publish(self.channel, b"")
        time.sleep(_SHARED_SECONDS)
        return _UNTIL_SENT


class Listener(ThreadLoop):
    """Calls `wake` at each signal, and after each new connection, because signals may be lost
    before.

    Only the listening thread uses the Redis subscription: a PubSub is not safe between threads.
    """

    def __init__(self, wake_signal: WakeSignal, wake: Callable[[], None]) -> None:
        self._channel, self._on_signal = wake_signal.channel, wake
        self._pubsub: PubSub | None = None
        super().__init__(f"hears-{self._channel}", self._listen, last=self._leave)

    def _listen(self) -> float:
        if self._pubsub is None:
            # A client that repeats would reconnect silently, and signals meanwhile would be lost.
            pubsub = WORK.single_try_client().pubsub(ignore_subscribe_messages=True)
            pubsub.subscribe(self._channel)
            self._pubsub = pubsub
            self._on_signal()  # signals before this subscription were lost
        try:
            message = self._pubsub.get_message(timeout=_LISTEN_SECONDS)
        except RedisError:
            self._leave()  # the next call subscribes anew
            raise
        if message:
            self._on_signal()
        return 0.0

    def _leave(self) -> None:
        pubsub, self._pubsub = self._pubsub, None
        if pubsub is not None:
            pubsub.close()
