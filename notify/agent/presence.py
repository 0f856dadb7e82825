"""How one sees an Agent from outside: a heartbeat, and figures for Prometheus.

An Agent runs beside a business system. The platform's Redis may be out of its reach, and must not
cost it anything then.
"""

from __future__ import annotations

import threading
import time

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from msgplatform.core.daemons.heartbeats import Heartbeat
from notify.agent.store import Measure

_WITHDRAW_SECONDS = 1.0


class QuietHeartbeat(Heartbeat):
    """A heartbeat from a thread of its own: connecting to a black hole takes seconds."""

    _thread: threading.Thread | None = None

    def send(self) -> None:
        """Write it soon; skipped while the last one is still on its way."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=super().send, name="heartbeat", daemon=True)
            self._thread.start()

    def withdraw(self) -> None:
        """Take it back, if that goes quickly; else it runs out by itself."""
        thread = threading.Thread(target=super().withdraw, daemon=True)
        thread.start()
        thread.join(_WITHDRAW_SECONDS)


class Figures:
    """The Agent's metrics, served by `serve()`."""

    def __init__(self) -> None:
        here = self.registry = CollectorRegistry()
        self._pending = Gauge("outbox_pending", "Rows that wait in the outbox", registry=here)
        self._oldest = Gauge("outbox_oldest_seconds", "Age of the oldest row", registry=here)
        self._dead = Gauge("outbox_dead", "Rows that the intake refused", registry=here)
        self._measured = Gauge(
            "outbox_measured_timestamp_seconds", "When the tables were counted", registry=here
        )
        self._up = Gauge("outbox_intake_up", "1 when it answered last time", registry=here)
        self._relayed = Counter("outbox_relayed", "Rows done with", ["result"], registry=here)
        for result in ("created", "duplicate", "refused"):
            self._relayed.labels(result)

    def serve(self, host: str, port: int) -> None:
        """Answer Prometheus from a thread. Raises OSError when the port is taken."""
        start_http_server(port, host, registry=self.registry)

    def measured(self, measure: Measure) -> None:
        self._pending.set(measure.pending)
        self._oldest.set(measure.oldest)
        self._dead.set(measure.dead)
        self._measured.set(time.time())

    def relayed(self, created: int, duplicates: int) -> None:
        self._relayed.labels("created").inc(created)
        self._relayed.labels("duplicate").inc(duplicates)

    def refused(self, rows: int) -> None:
        self._relayed.labels("refused").inc(rows)

    def intake_up(self, up: bool) -> None:
        self._up.set(up)
