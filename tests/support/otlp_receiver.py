"""A collector that takes OTLP over HTTP, decodes it with OpenTelemetry's own messages, and keeps
the spans. It can stop answering, as one that hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass(frozen=True)
class Seen:
    """A span as it was exported; ids in hexadecimal, times in unix nanoseconds."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    program: str
    attributes: dict[str, Any]
    links: tuple[tuple[str, str], ...]  # (trace, span)
    start: int
    end: int
    error: str  # of its status


@dataclass
class Receiver:
    """`moments`: when each request arrived (time.monotonic), also while it does not answer.
    `rejected`: spans of each request that are not taken. `retry_after`: seconds for which the next
    request asks to wait."""

    url: str = ""
    spans: list[Seen] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    moments: list[float] = field(default_factory=list)
    rejected: int = 0
    retry_after: int = 0
    is_answering: threading.Event = field(default_factory=threading.Event)

    @property
    def requests(self) -> int:
        return len(self.moments)

    def of(self, trace_id: str, name: str = "") -> list[Seen]:
        """The spans of a trace, those with this name; without one all of them."""
        return [s for s in list(self.spans) if s.trace_id == trace_id and name in ("", s.name)]

    def named(self, name: str) -> list[Seen]:
        return [span for span in list(self.spans) if span.name == name]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        receiver = self.server.receiver
        body = self.rfile.read(int(self.headers["content-length"]))
        receiver.moments.append(time.monotonic())
        receiver.is_answering.wait()
        assert self.path == "/v1/traces"
        assert self.headers["content-type"] == "application/x-protobuf"
        receiver.headers.append(dict(self.headers))
        answer = ExportTraceServiceResponse()
        if receiver.rejected:
            answer.partial_success.rejected_spans = receiver.rejected
            answer.partial_success.error_message = "too many spans"
        self.send_response(503 if receiver.retry_after else 200)
        if receiver.retry_after:
            self.send_header("retry-after", str(receiver.retry_after))
        else:
            receiver.spans += _spans(ExportTraceServiceRequest.FromString(body))
        receiver.retry_after = 0
        self.send_header("content-length", str(answer.ByteSize()))
        self.end_headers()
        self.wfile.write(answer.SerializeToString())

    def log_message(self, *_: object) -> None: ...


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    receiver: Receiver

    def handle_error(self, *_: object) -> None: ...  # the sender has ended


def _spans(request: ExportTraceServiceRequest) -> Iterator[Seen]:
    for resource_spans in request.resource_spans:
        resource = _attributes(resource_spans.resource)
        for scope in resource_spans.scope_spans:
            for span in scope.spans:
                yield Seen(
                    span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(),
                    str(resource["msgplatform.program"]), _attributes(span),
                    tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
                    span.start_time_unix_nano, span.end_time_unix_nano, span.status.message,
                )  # fmt: skip


def _attributes(holder: Any) -> dict[str, Any]:
    return {
        each.key: getattr(each.value, each.value.WhichOneof("value")) for each in holder.attributes
    }


@contextmanager
def receiver() -> Iterator[Receiver]:
    server = _Server(("127.0.0.1", 0), _Handler)
    server.receiver = Receiver(url=f"http://127.0.0.1:{server.server_port}")
    server.receiver.is_answering.set()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.receiver
    finally:
        server.receiver.is_answering.set()
        server.shutdown()
        server.server_close()
        thread.join()
