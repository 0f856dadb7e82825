"""Wakes the listeners that wait in this web server when a delivery of theirs is due.

One thread asks for all of them with one query: when one begins to wait, after a maker's signal,
when the next delivery is due, and every few seconds, since signals can be lost. It asks nothing
while nobody waits.
"""

from __future__ import annotations

import threading
import time

from django.db.models.functions import Now

from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.daemons.wake_signal import Listener
from msgplatform.core.long_polls import WAITING
from notify import signals
from notify.models import BizReceive, ReceiveMsg, first_due

# Between two queries: at least, and at most while somebody waits.
MIN_SECONDS, MAX_SECONDS = 1.0, 5.0
_UNTIL_WOKEN = 86_400.0
_PREFIX = "notify.listen:"
_ACTIVE = (BizReceive.Status.NORMAL, BizReceive.Status.SKIPPING)
_WAITING = (ReceiveMsg.Status.PENDING, ReceiveMsg.Status.QUEUED)


def topic(subscription: int) -> str:
    """The topic of a request that waits for a delivery of this subscription."""
    return f"{_PREFIX}{subscription}"


class Watch:
    """The thread of one process, which begins with the first listener."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._loop: ThreadLoop | None = None
        self._asked_at = -MIN_SECONDS

    def ensure_started(self) -> None:
        """Start the thread unless it runs. It looks whenever a listener begins to wait: something
        may have come since the listener's own look."""
        with self._starting:
            if self._loop is None:
                self._loop = ThreadLoop("listeners", self._turn)
                self._loop.start()
                WAITING.call_at_add(self._loop.wake)
                Listener(signals.LISTENERS, self._loop.wake).start()

    def _turn(self) -> float:
        """Wake those whose deliveries are due; returns the seconds until the next look."""
        pause = self._asked_at + MIN_SECONDS - time.monotonic()
        if pause > 0:
            return pause
        waiting = [int(name.removeprefix(_PREFIX)) for name in WAITING.topics(_PREFIX)]
        if not waiting:
            return _UNTIL_WOKEN
        self._asked_at = time.monotonic()
        # Index dives for each. A lease that is not over counts until its end.
        rows = BizReceive.objects.filter(id__in=waiting, status__in=_ACTIVE).order_by()
        seconds_until: dict[int, float] = {
            pk: min((at - now).total_seconds() for at in due_times if at)
            for pk, now, *due_times in rows.values_list("id", Now(), *map(first_due, _WAITING))
            if any(due_times)
        }
        WAITING.wake(topic(pk) for pk, seconds in seconds_until.items() if seconds <= 0)
        return max(MIN_SECONDS, min([MAX_SECONDS, *seconds_until.values()]))


WATCH = Watch()
