"""Alerts of a thread that must not wait for the database: another thread raises them."""

from __future__ import annotations

from collections import deque

from msgplatform.core import alerts, logging
from msgplatform.core.daemons.thread_loop import ThreadLoop

log = logging.get(__name__)

# The database hangs, and the log has each alert anyway.
MAX_WAITING = 100
_UNTIL_PUT = 60.0  # seconds; `put` ends the pause
_STOP_SECONDS = 1.0


class AlertQueue:
    """Any thread may `put`; only this class's own thread asks the database."""

    def __init__(self) -> None:
        self._waiting: deque[alerts.AlertEvent] = deque()
        self._thread = ThreadLoop("alerts", self._raise, every=_UNTIL_PUT, last=self._raise)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._thread.stop(_STOP_SECONDS)

    def put(self, event: alerts.AlertEvent) -> None:
        """Raise the alert soon; returns at once. Beyond MAX_WAITING it is dropped."""
        if len(self._waiting) >= MAX_WAITING:
            log.warning("alert_dropped", kind=event.kind, subject=event.subject, key=event.key)
            return
        self._waiting.append(event)
        self._thread.wake()

    def _raise(self) -> None:
        while self._waiting:
            alerts.raise_event(self._waiting.popleft())
