"""An Agent's metrics for Prometheus: it runs beside a business system, far from the platform."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from notify.agent.store import COUNTED, Measure

_UP_TO = f"counted up to {COUNTED:,}"


class Figures:
    """The Agent's metrics, served by `serve()`."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self._pending = Gauge(
            "outbox_pending", f"Rows that wait in the outbox; {_UP_TO}", registry=registry
        )
        self._oldest = Gauge("outbox_oldest_seconds", "Age of the oldest row", registry=registry)
        self._dead = Gauge(
            "outbox_dead", f"Rows that the intake refused; {_UP_TO}", registry=registry
        )
        self._measured = Gauge(
            "outbox_measured_timestamp_seconds", "When the tables were counted", registry=registry
        )
        self._up = Gauge("outbox_intake_up", "1 when it answered last time", registry=registry)
        self._relayed = Counter("outbox_relayed", "Rows done with", ["result"], registry=registry)
        for result in ("created", "duplicate", "refused"):
            self._relayed.labels(result)

    def serve(self, host: str, port: int) -> None:
        """Answer Prometheus from a thread. Raises OSError when the port is taken."""
        start_http_server(port, host, registry=self.registry)

    def set_measure(self, measure: Measure) -> None:
        self._pending.set(measure.pending)
        self._oldest.set(measure.oldest)
        self._dead.set(measure.dead)
        self._measured.set(time.time())

    def count_relayed(self, created_count: int, duplicates: int) -> None:
        self._relayed.labels("created").inc(created_count)
        self._relayed.labels("duplicate").inc(duplicates)

    def count_refused(self, rows: int) -> None:
        self._relayed.labels("refused").inc(rows)

    def set_intake_up(self, is_up: bool) -> None:
        self._up.set(is_up)
