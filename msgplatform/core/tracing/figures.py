"""The numbers of exported and dropped spans of all processes, and the processes that cannot export.
The work Redis keeps these figures, and may lose them."""

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from msgplatform.core.connections import RedisError, briefly, work_redis
from msgplatform.core.daemons.presence import Presence
from msgplatform.core.flows.metric import Metrics, Sample
from msgplatform.core.tracing.context import is_on

_SPANS_KEY, _FAILURES_KEY = "platform:spans", "platform:traces"
_EXPORTED, _DROPPED = "exported", "dropped"
# A process that cannot export reports again within this time.
_FAILURE_SECONDS = 90.0
_MAX_WHY = 200

METRICS = Metrics()
_COUNT = METRICS.counter(
    "trace_spans", "Spans of traces, exported to the collector or dropped", "outcome"
)


# Process (host:pid) → why the collector does not take its spans.
failures = Presence(work_redis, _FAILURES_KEY, str, _FAILURE_SECONDS)


class Tally:
    """The spans of this process. Used by the exporting thread."""

    def __init__(self) -> None:
        self.exported = self.dropped = 0
        self.failure = ""  # '': the collector takes spans
        self._reported = {_EXPORTED: 0, _DROPPED: 0}
        self._has_failed = False
        self._name = f"{socket.gethostname()}:{os.getpid()}"

    @briefly()
    def report(self) -> None:
        """Add the figures since the last report; without Redis the next report adds them."""
        totals = {_EXPORTED: self.exported, _DROPPED: self.dropped}
        with suppress(RedisError):
            for outcome, total in totals.items():
                if new := total - self._reported[outcome]:
                    work_redis().hincrby(_SPANS_KEY, outcome, new)
                    self._reported[outcome] = total
            if self.failure:
                failures.report({self._name: self.failure[:_MAX_WHY]})
            elif self._has_failed:
                failures.withdraw(self._name)
            self._has_failed = bool(self.failure)


def samples() -> Iterator[Sample]:
    """The spans of all processes; none while traces are off."""
    if not is_on():
        return
    try:
        counts: Any = work_redis().hgetall(_SPANS_KEY)
    except RedisError:
        return
    for outcome in (_EXPORTED, _DROPPED):
        yield _COUNT.of(int(counts.get(outcome.encode(), 0)), outcome=outcome)
