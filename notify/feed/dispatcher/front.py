"""Where the queue of a topic begins.

A handled event leaves the index of waiting ones only when no transaction on the server is older
than it. Beside a report or a backup that runs for an hour, a receiver that looks for the oldest
event from the very beginning passes over all that were handled in this hour, with each batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

from notify.feed.dispatcher import queue
from notify.feed.dispatcher.queue import Event
from notify.feed.models import EventQueue

_WAITING = EventQueue.Status.WAITING
# An event may begin to wait behind the front: committed late, replayed, or given back by a
# receiver that died. So one looks from the beginning every few seconds; longer when that takes
# long, for it should not be what the time goes into.
_LEAST_SECONDS, _MOST_SECONDS = 2.0, 10.0
_TIMES = 20


class Front:
    """The waiting events of a topic, the oldest first. It is remembered only while batches are
    full: a queue with little in it is always looked at as a whole."""

    def __init__(self, topic: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._topic, self._clock = topic, clock
        self._since, self._until = 0, 0.0

    def anything(self) -> bool:
        """Whether an event waits; when none does behind the front, the next question is about
        all."""
        if self._clock() >= self._until:
            self._since = 0
        found = queue.waiting(self._topic, self._since)
        if not found:
            self._since = 0
        return found

    def lock(self, limit: int, without: Collection[int] = ()) -> list[Event]:
        """Lock the oldest events but for `without`, in the caller's transaction."""
        begun = self._clock()
        found = queue.lock(self._topic, _WAITING, limit, self._since, without)
        if not self._since:
            now = self._clock()
            pause = max(_LEAST_SECONDS, _TIMES * (now - begun))
            self._until = now + min(_MOST_SECONDS, pause)
        return found

    def move(self, handled: Sequence[Event], is_full: bool) -> None:
        """The first events of a batch do not wait any more, which is committed; `is_full`: there
        were as many as were asked for."""
        self._since = handled[-1].qid if handled and is_full else 0
