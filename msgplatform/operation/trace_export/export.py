"""Exports ended spans to the collector, over OTLP (HTTP, protobuf), in a thread of its own.

No message waits for the collector. At most MAX_SPANS wait in memory; further spans are dropped and
counted. OpenTelemetry's own queue is not used: it does not count dropped spans, never retries, and
delays the end of a process by half a minute if the collector hangs.

Only this module imports OpenTelemetry's SDK, and only while traces are on.
"""

from __future__ import annotations

import atexit
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from functools import lru_cache
from multiprocessing import util

from django.conf import settings
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from msgplatform.core import cells, logging
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.http import engine as http
from msgplatform.core.http.response import retry_after
from msgplatform.core.rates.backoff import Backoff
from msgplatform.core.tracing import figures
from msgplatform.core.tracing.context import MAX_LINKS, Context, Kind, Value

log = logging.get(__name__)

MAX_SPANS = 2048  # spans in memory; about 6 KiB each
BATCH = 512
EVERY_SECONDS, IDLE_SECONDS = 1.0, 60.0
# Seconds that a process waits at its end for the export of its last spans.
FLUSH_SECONDS = 3.0
_FIRST_PAUSE, _MAX_PAUSE = 1.0, 30.0
_MAX_ASKED_PAUSE = 60.0  # of a Retry-After; a report of a failure holds longer
# Statuses after which the same spans are sent again (OTLP, "Retryable Response Codes").
_RETRYABLE = frozenset({0, 429, 502, 503, 504})
_PATH = "/v1/traces"
# The collector is the operator's own, so private networks are allowed; metadata addresses are not.
_ANYWHERE = ("0.0.0.0/0", "::/0")
_KINDS: Mapping[str, trace.SpanKind] = {kind.name.lower(): kind for kind in trace.SpanKind}


def start(
    name: str,
    parent: Context | None,
    kind: Kind,
    at: int | None,
    links: Iterable[Context],
    attributes: Mapping[str, Value],
) -> trace.Span:
    """Begin a span; see `spans.start`."""
    context = None
    if parent is not None:
        context = trace.set_span_in_context(trace.NonRecordingSpan(_span_context(parent)))
    return _tracer().start_span(
        name,
        context,
        kind=_KINDS[kind],
        attributes=attributes,
        links=[trace.Link(_span_context(link)) for link in links],
        start_time=at,
    )


def _span_context(context: Context) -> trace.SpanContext:
    trace_id, span_id = int(context.trace_id, 16), int(context.span_id, 16)
    return trace.SpanContext(
        trace_id, span_id, is_remote=True, trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED)
    )


@lru_cache(maxsize=1)  # one for the process, because it starts a thread
def _tracer() -> trace.Tracer:
    host, pid = socket.gethostname(), os.getpid()
    # A daemon is named by its command, such as run_sender; a web server has no command.
    has_command = len(sys.argv) > 1 and sys.argv[1].startswith("run_")
    resource = Resource({
        "service.name": settings.OTEL_SERVICE_NAME,
        "service.instance.id": f"{host}:{pid}",
        "host.name": host,
        "process.pid": pid,
        "msgplatform.program": sys.argv[1] if has_command else "web",
        **({"msgplatform.cell": label} if (label := cells.own().label) else {}),
    })  # fmt: skip
    # ALWAYS_ON, because sampling was decided at intake: other messages begin no spans.
    provider = TracerProvider(
        sampler=ALWAYS_ON, resource=resource, shutdown_on_exit=False,
        span_limits=SpanLimits(max_links=MAX_LINKS),
    )  # fmt: skip
    queue = SpanQueue(Collector())
    provider.add_span_processor(queue)
    queue.start()
    # `Finalize` runs at the end of a web worker, a child of multiprocessing; `atexit` elsewhere.
    util.Finalize(None, queue.shutdown, exitpriority=1)
    atexit.register(queue.shutdown)
    return provider.get_tracer("msgplatform")


class SpanQueue(SpanProcessor):
    """Ended spans that wait for the collector. Any thread may call `on_end`."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._spans: deque[ReadableSpan] = deque()
        self._batch: list[ReadableSpan] = []  # only the thread uses it
        self._is_idle = False  # the thread sleeps: the next span must wake it
        self._is_shut = False
        self._dropped = 0
        self._lock = threading.Lock()
        self._asked_pause = 0.0  # seconds that the collector asked to wait
        self._pause = Backoff(first=_FIRST_PAUSE, factor=2.0, cap=_MAX_PAUSE)
        self._tally = figures.Tally()
        self._loop = ThreadLoop("traces", self._turn, every=EVERY_SECONDS, last=self._flush)

    def start(self) -> None:
        self._loop.start()

    def on_end(self, span: ReadableSpan) -> None:
        if len(self._spans) >= MAX_SPANS:
            with self._lock:
                self._dropped += 1
            return
        self._spans.append(span)
        if self._is_idle or (len(self._spans) >= BATCH and not self._batch):
            self._loop.wake()

    def shutdown(self) -> None:
        """Export the waiting spans, within FLUSH_SECONDS. Later calls do nothing."""
        if not self._is_shut:
            self._is_shut = True
            self._loop.stop(FLUSH_SECONDS)

    # -- the thread ------------------------------------------------------------------------------
    def _turn(self) -> float:
        """Export all waiting spans; returns the seconds until the next turn. Never raises: the log
        has one line when the collector fails, and one when it is back."""
        if self._is_idle and self._spans:
            self._is_idle = False
            return EVERY_SECONDS  # wait for more spans
        while self._batch or self._spans:
            if not self._export(settings.OTEL_EXPORTER_OTLP_TIMEOUT / 1000):
                self._report()
                return max(self._pause.next(), self._asked_pause)
            self._pause.reset()
        self._report()
        self._is_idle = True
        # A span that ended just before `_is_idle` was set has not woken this thread.
        return 0.0 if self._spans else IDLE_SECONDS

    def _flush(self) -> None:
        until = time.monotonic() + FLUSH_SECONDS
        while (self._batch or self._spans) and (left := until - time.monotonic()) > 0:
            if not self._export(left):
                break
        self._report()

    def _export(self, seconds: float) -> bool:
        """Send one batch to the collector; False if the batch must be sent again."""
        while self._spans and len(self._batch) < BATCH:
            self._batch.append(self._spans.popleft())
        try:
            body = encode_spans(self._batch).SerializeToString()
            response = self._collector.post(body, seconds)
        except Exception:
            # Drop the batch, because its encoding would fail again.
            log.exception("spans_not_encoded", spans=len(self._batch))
            self._tally.dropped += len(self._batch)
            self._batch = []
            return True
        rejected_count, why = _rejection(response, len(self._batch))
        if not why and self._tally.failure:
            log.warning("traces_exported_again", dropped=self._tally.dropped)
        elif why and not self._tally.failure:
            log.warning("traces_not_exported", why=why)
        self._tally.failure = why
        if response.status in _RETRYABLE:
            asked_pause = retry_after(response.headers, time.time())
            self._asked_pause = min(asked_pause, _MAX_ASKED_PAUSE)
            return False
        self._tally.exported += len(self._batch) - rejected_count
        self._tally.dropped += rejected_count
        self._batch = []
        return True

    def _report(self) -> None:
        with self._lock:
            dropped_count, self._dropped = self._dropped, 0
        self._tally.dropped += dropped_count
        self._tally.report()


class Collector:
    """A client of the collector, for one thread."""

    def __init__(self) -> None:
        self._url = settings.OTEL_EXPORTER_OTLP_ENDPOINT + _PATH
        self._headers = [
            ("content-type", "application/x-protobuf"),
            *settings.OTEL_EXPORTER_OTLP_HEADERS,
        ]
        self._engine: http.Engine | None = None

    def post(self, body: bytes, seconds: float) -> http.Response:
        """Post a body; the answer's status is 0 if there is none."""
        if self._engine is None:
            self._engine = http.engine_from_settings(
                guard=http.AddressGuard(_ANYWHERE), window=1, max_connections=1
            )
        self._engine.submit(http.Request(self._url, body, self._headers, max(0.1, seconds)))
        while not (responses := self._engine.poll(seconds)):
            continue  # the engine ends the request in time
        return responses[0]


def _rejection(response: http.Response, count: int) -> tuple[int, str]:
    """The number of spans, of `count` sent ones, that the collector did not take, and the reason;
    after a 2xx the answer names them (OTLP, "Partial Success")."""
    if not 200 <= response.status < 300:
        return count, response.detail or response.error or f"HTTP {response.status}"
    try:
        partial = ExportTraceServiceResponse.FromString(response.body).partial_success
    except DecodeError:  # the page of a proxy, or JSON
        return 0, ""
    if partial.rejected_spans <= 0:
        return 0, ""
    return min(partial.rejected_spans, count), partial.error_message or "spans rejected"
